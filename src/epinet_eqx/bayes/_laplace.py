"""Laplace approximation of the last layer's posterior distribution (Section 3.2)."""

import abc
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import Scalar, check_finite, check_positive, check_scalar, check_shape, num_examples
from .._enn import AbstractENN
from .._likelihoods import CATEGORICAL, AbstractFisher, AbstractLikelihood
from .._tree import Frozen
from ..indices import GaussianIndex
from ..networks import AbstractNetwork

# Above this many weights, "auto" takes the Kronecker factors instead of the full covariance.
_MAX_DENSE = 2048


class AbstractRoot(eqx.Module):
    """A root of a covariance: a linear map that takes a standard normal vector to a deviation of the weights.

    It is the symmetric root. Eigenvectors alone would also do, but their signs differ between machines, and one key has
    to stand for the same weights on all of them.
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
    for all inputs, so joint predictions are coherent. Make it with `last_layer_laplace`; it is not trained further.
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
    """Return eigenvalues, at least zero despite rounding, and eigenvectors of a positive semidefinite matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.maximum(values, 0.0), vectors


def _curvature(
    likelihood: AbstractFisher,
    inputs: Float[Array, "batch inputs"],
    outputs: Float[Array, "batch classes"],
    chunk_size: int,
) -> Float[Array, "weights weights"]:
    r"""Return $\sum_n \phi_n \phi_n^\top \otimes F_n$ with the Fisher information $F_n$ of each output."""
    (num_inputs, num_classes), length = (inputs.shape[1], outputs.shape[1]), inputs.shape[0]
    # Zero inputs, which add nothing, fill the last chunk: memory does not grow with the number of examples.
    padding = ((0, -length % chunk_size), (0, 0))
    chunks = [jnp.pad(array, padding).reshape(-1, chunk_size, array.shape[1]) for array in (inputs, outputs)]

    def add(
        total: Float[Array, "inputs classes classes inputs"], chunk: list[Array]
    ) -> tuple[Float[Array, "inputs classes classes inputs"], None]:
        phi, output = chunk
        each = jax.vmap(lambda one: likelihood.fisher(one[None], jnp.ones(1)))(output)
        return total + jnp.einsum("niab,nj->iabj", phi[:, :, None, None] * each[:, None], phi), None

    total, _ = jax.lax.scan(add, jnp.zeros((num_inputs, num_classes, num_classes, num_inputs)), chunks)
    return jnp.transpose(total, (0, 1, 3, 2)).reshape(num_inputs * num_classes, num_inputs * num_classes)


def last_layer_laplace(
    network: AbstractNetwork,
    x: PyTree[Array],
    y: Shaped[Array, "batch ..."] | None = None,
    *,
    prior_precision: Scalar,
    likelihood: AbstractLikelihood = CATEGORICAL,
    structure: Literal["auto", "dense", "kronecker"] = "auto",
    chunk_size: int = 256,
) -> LastLayerLaplace:
    r"""Return the posterior distribution of a network's last layer, given its features, as an ENN.

    The prior of each weight and bias is $N(0, 1/\lambda)$. The mean is the trained network itself, assumed to be at the
    mode, and the precision is $\lambda I$ plus the Fisher information (for logits, counts and the like, that is the
    Hessian). With a `Gaussian` likelihood this is exact Bayesian linear regression on the features, mean included.

    Args:
        network: the trained network; its output should be linear in its features, as for an `MLP` with the default
            `feature_layers`.
        x: training inputs with a leading batch axis.
        y: training targets. The mean of a `Gaussian` likelihood needs them; for other likelihoods they are only
            checked, because the Fisher information does not depend on them.
        prior_precision: $\lambda$.
        likelihood: how an output becomes a distribution of targets.
        structure: "dense" for the full covariance; "kronecker" for the product of one factor over inputs and one over
            classes (exact for a `Gaussian` likelihood, which always has it); "auto" by the number of weights.
        chunk_size: number of inputs processed at a time.
    """
    if structure not in ("auto", "dense", "kronecker"):
        raise ValueError(f'`structure` must be "auto", "dense" or "kronecker"; got {structure!r}.')
    if not isinstance(likelihood, AbstractFisher):
        raise ValueError(
            f"`likelihood` must have a Fisher information (`AbstractFisher`); got {type(likelihood).__name__}."
        )
    check_positive("chunk_size", chunk_size)
    precision = check_scalar("prior_precision", prior_precision, minimum=1e-12)
    length = num_examples("x", x)
    if y is not None and y.shape[0] != length:
        raise ValueError(f"`y` must have as many examples as `x`, {length}; got {y.shape[0]}.")
    outputs, inputs = jax.lax.map(lambda x: _with_inputs(network, x), x, batch_size=chunk_size)
    inputs, outputs = check_finite("features", inputs), check_finite("outputs", outputs)
    num_inputs, num_classes = inputs.shape[1], outputs.shape[1]
    index = GaussianIndex(num_inputs * num_classes)
    targets = None if y is None else likelihood.check_targets(y, num_classes)
    if likelihood.is_conjugate:
        if targets is None:
            raise ValueError(f"`y` must be given for the likelihood {type(likelihood).__name__}; got None.")
        # The precision of each output, the same for all examples, relative to that of the first.
        noises = jnp.diagonal(likelihood.fisher(outputs[:1], jnp.ones(1)))
        noise, relative = noises[0], noises / noises[0]
        values, vectors = _eigen(noise * (inputs.T @ inputs))
        total = values[:, None] * relative[None, :] + precision
        mean = vectors @ ((vectors.T @ (noise * (inputs.T @ (targets * relative[None, :])))) / total)
        scale = jnp.broadcast_to(1 / jnp.sqrt(total), (num_inputs, num_classes))
        return LastLayerLaplace(network, KroneckerRoot(vectors, jnp.eye(num_classes), scale), index, mean)
    if structure == "dense" or (structure == "auto" and index.size <= _MAX_DENSE):
        values, vectors = _eigen(_curvature(likelihood, inputs, outputs, min(chunk_size, length)))
        root = (vectors / jnp.sqrt(values + precision)[None, :]) @ vectors.T
        return LastLayerLaplace(network, DenseRoot(root, num_classes), index)
    input_values, input_vectors = _eigen(inputs.T @ inputs)
    class_values, class_vectors = _eigen(likelihood.fisher(outputs, jnp.full(length, 1 / length)))
    scale = 1 / jnp.sqrt(input_values[:, None] * class_values[None, :] + precision)
    return LastLayerLaplace(network, KroneckerRoot(input_vectors, class_vectors, scale), index)
