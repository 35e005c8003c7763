"""Laplace approximation of the last layer's posterior distribution (Section 3.2)."""

import abc
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import check_finite, check_labels, check_positive, check_scalar, check_shape, num_examples
from .._enn import AbstractENN
from .._tree import Frozen
from ..indices import GaussianIndex
from ..networks import AbstractNetwork

# Above this many weights, "auto" takes the Kronecker factors instead of the full covariance.
_MAX_DENSE = 2048


class AbstractRoot(eqx.Module):
    """A root of a covariance: a linear map that takes a standard normal vector to a deviation of the weights.

    It is the symmetric one: eigenvectors alone would do, too, but their signs are another machine's to choose, and one
    key would stand for other weights there.
    """

    @abc.abstractmethod
    def __call__(self, z: Float[Array, " index"]) -> Float[Array, "inputs classes"]:
        """Return the deviation of the weights at one index."""


class DenseRoot(AbstractRoot):
    """The root of a full covariance of all weights."""

    matrix: Float[Array, "weights index"]
    num_classes: int = eqx.field(static=True)

    def __call__(self, z: Float[Array, " index"]) -> Float[Array, "inputs classes"]:
        """Return the deviation of the weights at one index."""
        return (self.matrix @ z).reshape(-1, self.num_classes)


class KroneckerRoot(AbstractRoot):
    """The root of a covariance whose eigenvectors are products of one basis over inputs and one over classes."""

    input_basis: Float[Array, "inputs inputs"]
    class_basis: Float[Array, "classes classes"]
    scale: Float[Array, "inputs classes"]

    def __call__(self, z: Float[Array, " index"]) -> Float[Array, "inputs classes"]:
        """Return the deviation of the weights at one index."""
        along = self.input_basis.T @ z.reshape(self.scale.shape) @ self.class_basis
        return self.input_basis @ (self.scale * along) @ self.class_basis.T


class LaplaceEmbedding(NamedTuple):
    """What all indices share: the output at the posterior mean, and the inputs of the last layer."""

    mean: Float[Array, " classes"]
    inputs: Float[Array, " inputs"]


class LastLayerLaplace(AbstractENN):
    r"""A network whose last layer has a Gaussian distribution: $\hat\theta = \bar\theta + R z$, $R R^\top = \Sigma$.

    The last layer's inputs are the features of the network and a one, for the bias. One `z` gives one set of weights
    for all inputs, so joint predictions are coherent. Made by `last_layer_laplace`; nothing of it is trained further.
    """

    network: Frozen[AbstractNetwork]
    mean: Frozen[Float[Array, "inputs classes"]] | None
    root: Frozen[AbstractRoot]
    index: GaussianIndex

    def __init__(
        self,
        network: AbstractNetwork,
        root: AbstractRoot,
        index: GaussianIndex,
        mean: Float[Array, "inputs classes"] | None = None,
    ):
        """Initialize from parts.

        Args:
            network: the trained network.
            root: the root of the covariance of the weights.
            index: the reference distribution, with one entry per weight.
            mean: the mean of the weights; if not given, the output at the mean is the network's own.
        """
        self.network = Frozen(network)
        self.mean = None if mean is None else Frozen(mean)
        self.root = Frozen(root)
        self.index = index

    def embed(self, x: PyTree[Array]) -> LaplaceEmbedding:
        """Run the network, once."""
        output, inputs = _with_inputs(self.network.value, x)
        return LaplaceEmbedding(output if self.mean is None else inputs @ self.mean.value, inputs)

    def heads(self, embedding: LaplaceEmbedding, zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the outputs with the last layers of many indices, each layer computed once for all inputs."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        deviations = jax.vmap(self.root.value)(zs)
        return embedding.mean[None, :] + jnp.einsum("i,mic->mc", embedding.inputs, deviations)


def _with_inputs(
    network: AbstractNetwork, x: PyTree[Array]
) -> tuple[Float[Array, " classes"], Float[Array, " inputs"]]:
    """Return the output of the network, and the inputs of its last layer: the features and a one."""
    output, features = network.with_features(x)
    return output, jnp.append(features, jnp.ones((), features.dtype))


def _eigen(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Return eigenvalues and eigenvectors of a matrix without negative eigenvalues, but for rounding."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.maximum(values, 0.0), vectors


def _softmax_curvature(
    inputs: Float[Array, "batch inputs"], probs: Float[Array, "batch classes"]
) -> Float[Array, "weights weights"]:
    r"""Return $\sum_n \phi_n \phi_n^\top \otimes (\mathrm{diag}(p_n) - p_n p_n^\top)$, the Fisher information."""
    num_classes = probs.shape[1]

    def block(pair: tuple[Array, Array]) -> Float[Array, "inputs inputs"]:
        first, second = pair
        weights = probs[:, first] * ((first == second).astype(probs.dtype) - probs[:, second])
        return (inputs * weights[:, None]).T @ inputs

    # Pair by pair of classes: memory beyond the result is that of the inputs, whatever the number of examples.
    firsts, seconds = jnp.divmod(jnp.arange(num_classes**2), num_classes)
    blocks = jax.lax.map(block, (firsts, seconds))
    size = inputs.shape[1]
    blocks = blocks.reshape(num_classes, num_classes, size, size)
    return jnp.transpose(blocks, (2, 0, 3, 1)).reshape(size * num_classes, size * num_classes)


def last_layer_laplace(
    network: AbstractNetwork,
    x: PyTree[Array],
    y: Shaped[Array, "batch ..."] | None = None,
    *,
    prior_precision: float | Float[Array, ""],
    likelihood: Literal["categorical", "gaussian"] = "categorical",
    noise_scale: float | Float[Array, ""] = 1.0,
    structure: Literal["auto", "dense", "kronecker"] = "auto",
    chunk_size: int = 256,
) -> LastLayerLaplace:
    r"""Return the posterior distribution of a network's last layer, given its features, as an ENN.

    The prior of each weight and bias is $N(0, 1/\lambda)$. For the categorical likelihood the mean is the trained
    network itself, taken to be at the mode, and the precision is $\lambda I$ plus the Fisher information of the softmax
    (which is the Hessian). For the Gaussian likelihood this is exact Bayesian linear regression on the features, the
    mean included.

    Args:
        network: the trained network; its output should be linear in its features, as for an `MLP` with the default
            `feature_layers`.
        x: training inputs with a leading batch axis.
        y: training targets, `(batch, outputs)` or `(batch,)`. The Gaussian mean needs them; for the categorical
            likelihood nothing depends on them, and labels are only checked.
        prior_precision: $\lambda$.
        likelihood: how an output becomes a distribution of targets.
        noise_scale: standard deviation of the Gaussian likelihood.
        structure: "dense" for the full covariance; "kronecker" for the product of one factor over inputs and one over
            classes (exact for the Gaussian likelihood, which always has it); "auto" by the number of weights.
        chunk_size: number of inputs that go through the network at a time.
    """
    if likelihood not in ("categorical", "gaussian"):
        raise ValueError(f'`likelihood` must be "categorical" or "gaussian"; got {likelihood!r}.')
    if structure not in ("auto", "dense", "kronecker"):
        raise ValueError(f'`structure` must be "auto", "dense" or "kronecker"; got {structure!r}.')
    check_positive("chunk_size", chunk_size)
    precision = check_scalar("prior_precision", jnp.asarray(prior_precision, dtype=float), minimum=1e-12)
    length = num_examples("x", x)
    if y is not None and y.shape[0] != length:
        raise ValueError(f"`y` must have as many examples as `x`, {length}; got {y.shape[0]}.")
    outputs, inputs = jax.lax.map(lambda x: _with_inputs(network, x), x, batch_size=chunk_size)
    inputs = check_finite("features", inputs)
    num_inputs, num_classes = inputs.shape[1], outputs.shape[1]
    index = GaussianIndex(num_inputs * num_classes)
    if likelihood == "gaussian":
        if y is None:
            raise ValueError("`y` must be given for the Gaussian likelihood; got None.")
        targets = y.reshape(length, -1)
        check_shape("y", targets, outputs.shape)
        noise = check_scalar("noise_scale", jnp.asarray(noise_scale, dtype=float), minimum=1e-12)
        values, vectors = _eigen(inputs.T @ inputs / noise**2)
        total = (values + precision)[:, None]
        mean = vectors @ ((vectors.T @ (inputs.T @ targets / noise**2)) / total)
        scale = jnp.broadcast_to(1 / jnp.sqrt(total), (num_inputs, num_classes))
        return LastLayerLaplace(network, KroneckerRoot(vectors, jnp.eye(num_classes), scale), index, mean)
    if y is not None:
        check_labels("y", y, num_classes)
    probs = jax.nn.softmax(check_finite("outputs", outputs))
    if structure == "dense" or (structure == "auto" and index.size <= _MAX_DENSE):
        values, vectors = _eigen(_softmax_curvature(inputs, probs))
        root = (vectors / jnp.sqrt(values + precision)[None, :]) @ vectors.T
        return LastLayerLaplace(network, DenseRoot(root, num_classes), index)
    input_values, input_vectors = _eigen(inputs.T @ inputs)
    class_values, class_vectors = _eigen(jnp.diag(jnp.mean(probs, axis=0)) - probs.T @ probs / length)
    scale = 1 / jnp.sqrt(input_values[:, None] * class_values[None, :] + precision)
    return LastLayerLaplace(network, KroneckerRoot(input_vectors, class_vectors, scale), index)
