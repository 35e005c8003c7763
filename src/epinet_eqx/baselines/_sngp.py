"""A Gaussian process on the features of a network (Liu et al., 2020): the paper's baseline "sngp" (Section 6)."""

from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import Scalar, check_finite, check_positive, check_scalar, check_shape, num_examples
from .._enn import AbstractENN
from .._init import Initializer, truncated_normal
from .._keys import named_keys
from .._tree import Frozen
from ..combinators import OnTrunk
from ..indices import GaussianIndex


def _orthogonal_directions(num_directions: int, dim: int, *, key: PRNGKeyArray) -> Float[Array, "directions dim"]:
    """Return unit vectors, orthogonal to each other in groups of at most `dim`, each uniform on the sphere."""
    group = min(dim, num_directions)
    num_groups = -(-num_directions // group)
    q, r = jnp.linalg.qr(jr.normal(key, (num_groups, dim, group)))
    # The signs that make the decomposition unique also make its result uniform.
    q = q * jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))[:, None, :]
    return jnp.swapaxes(q, 1, 2).reshape(num_groups * group, dim)[:num_directions]


class RandomFeatures(eqx.Module):
    r"""$\Phi(h) = \cos(W h + b)$: rows of $W$ are normal with standard deviation `scale`, orthogonal in groups.

    $2 \Phi(h)^\top \Phi(h') / D$ is about $\exp(-s^2 \|h - h'\|^2 / 2)$, with $D$ features and $s$ the scale.
    """

    weight: Float[Array, "random features"]
    bias: Float[Array, " random"]

    def __init__(self, feature_dim: int, num_features: int, *, scale: Scalar = 0.05, key: PRNGKeyArray):
        """Initialize from sizes.

        Args:
            feature_dim: size of the input.
            num_features: number of random features.
            scale: standard deviation of the entries of $W$, one over the length scale of the kernel.
            key: random key.
        """
        check_positive("feature_dim", feature_dim)
        check_positive("num_features", num_features)
        value = check_scalar("scale", scale, minimum=0.0)
        direction_key, norm_key, bias_key = named_keys(key, "directions", "norms", "bias")
        directions = _orthogonal_directions(num_features, feature_dim, key=direction_key)
        # A normal vector is a uniform direction times the norm of another normal vector.
        norms = jnp.linalg.norm(jr.normal(norm_key, (num_features, feature_dim)), axis=1)
        self.weight = value * norms[:, None] * directions
        self.bias = jr.uniform(bias_key, (num_features,), maxval=2 * jnp.pi)

    def __call__(self, x: Float[Array, " features"]) -> Float[Array, " random"]:
        """Return the random features of one input."""
        check_shape("x", x, (self.weight.shape[-1],))
        return jnp.cos(self.weight @ x + self.bias)


_E = TypeVar("_E", bound=AbstractENN)


class SNGPEmbedding(NamedTuple):
    """What all indices share: the logits at the posterior mean, and the random features times the covariance's root."""

    mean: Float[Array, " classes"]
    projected: Float[Array, " random"] | None


class SNGP(AbstractENN):
    r"""Logits $(\beta + s \Sigma^{1/2} Z)^\top \Phi(h)$, with $\Phi$ random features and $Z$ the index, as a matrix.

    $\beta$ is trained. The covariance $\Sigma = (\rho I + \sum_n \Phi_n \Phi_n^\top)^{-1}$, one for all classes, comes
    from the training data afterwards, by `with_posterior`; before that the output does not depend on the index. One $Z$
    is one set of output weights for all inputs, so joint predictions are coherent. The input is a feature vector: see
    `OnTrunk`, and `SpectrallyBounded` for a trunk that does not stretch distances.
    """

    random_features: Frozen[RandomFeatures]
    weight: Float[Array, "random classes"]
    root: Frozen[Float[Array, "random random"]] | None
    scale: Frozen[Float[Array, ""]]
    index: GaussianIndex

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        num_features: int = 1024,
        feature_scale: Scalar = 0.05,
        scale: Scalar = 1.0,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize the ENN.

        Args:
            feature_dim: size of the feature vector.
            num_classes: number of logits.
            num_features: number of random features.
            feature_scale: one over the length scale of the kernel, in the units of the feature vector.
            scale: multiplies the deviations of the output weights; 1 is the posterior.
            initializer: draws the output weights; there is no bias.
            key: random key.
        """
        check_positive("num_classes", num_classes)
        feature_key, weight_key = named_keys(key, "features", "weight")
        features = RandomFeatures(feature_dim, num_features, scale=feature_scale, key=feature_key)
        self.random_features = Frozen(features)
        self.weight = initializer(weight_key, (num_classes, num_features))[0].T
        self.root = None
        self.scale = Frozen(check_scalar("scale", scale, minimum=0.0))
        self.index = GaussianIndex(num_features * num_classes)

    def gram(self, x: Float[Array, "batch features"]) -> Float[Array, "random random"]:
        r"""Return $\sum_n \Phi_n \Phi_n^\top$ over a batch; the sum over the batches of an epoch is for `with_gram`."""
        random = jax.vmap(self.random_features.value)(x)
        return random.T @ random

    def with_gram(self, gram: Float[Array, "random random"], *, ridge: Scalar = 1.0) -> "SNGP":
        r"""Return the ENN with the posterior that belongs to the sum of $\Phi_n \Phi_n^\top$ over the training data.

        Args:
            gram: the sum.
            ridge: $\rho$, the precision of the prior distribution of an output weight.
        """
        size = self.weight.shape[-2]
        check_shape("gram", gram, (size, size))
        precision = check_scalar("ridge", ridge, minimum=1e-12)
        # Not by Cholesky: with many examples the precision spans more decades than a float has digits, and eigenvalues
        # can be kept positive. The symmetric root is unique, so the same index means the same weights on any machine.
        values, vectors = jnp.linalg.eigh(check_finite("gram", gram))
        root = (vectors / jnp.sqrt(jnp.maximum(values, 0.0) + precision)[None, :]) @ vectors.T
        return eqx.tree_at(lambda enn: enn.root, self, Frozen(root), is_leaf=lambda node: node is None)

    def with_scale(self, scale: Scalar) -> "SNGP":
        """Return the ENN with another scale of the deviations of the output weights."""
        value = check_scalar("scale", scale, minimum=0.0)
        return eqx.tree_at(lambda enn: enn.scale, self, Frozen(value))

    def embed(self, x: Float[Array, " features"]) -> SNGPEmbedding:
        """Return the logits at the mean, and the random features times the root of the covariance."""
        random = self.random_features.value(x)
        projected = None if self.root is None else self.scale.value * (random @ self.root.value)
        return SNGPEmbedding(random @ self.weight, projected)

    def heads(self, embedding: SNGPEmbedding, zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the logits with the output weights of many indices."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        if embedding.projected is None:
            return jnp.broadcast_to(embedding.mean, (zs.shape[0], *embedding.mean.shape))
        # Under a `vmap` over inputs this is one product, because the root multiplies the inputs, not the indices.
        deviations = jnp.einsum("d,mdc->mc", embedding.projected, zs.reshape(-1, *self.weight.shape))
        return embedding.mean[None, :] + deviations


def with_posterior(enn: _E, x: PyTree[Array], *, ridge: Scalar = 1.0, chunk_size: int = 256) -> _E:
    """Return a trained `SNGP`, bare or `OnTrunk`, with the posterior of its output weights given the training inputs.

    A pure function: map it over stacked ENNs with `eqx.filter_vmap`. It keeps the random features of all inputs in
    memory; for larger data, sum `SNGP.gram` over batches and call `SNGP.with_gram`.

    Args:
        enn: the ENN, after training.
        x: training inputs with a leading batch axis.
        ridge: the precision of the prior distribution of an output weight.
        chunk_size: number of inputs that the trunk processes at a time.
    """
    num_examples("x", x)
    check_positive("chunk_size", chunk_size)
    if isinstance(enn, SNGP):
        check_shape("x", x, (x.shape[0], enn.random_features.content.weight.shape[-1]))
        return enn.with_gram(enn.gram(x), ridge=ridge)  # pyright: ignore[reportReturnType]
    if not isinstance(enn, OnTrunk) or not isinstance(enn.enn, SNGP):
        found = f"OnTrunk(..., {type(enn.enn).__name__})" if isinstance(enn, OnTrunk) else type(enn).__name__
        raise TypeError(f"`enn` must be an `SNGP`, bare or `OnTrunk`; got {found}.")
    features = jax.lax.map(enn.features, x, batch_size=chunk_size)
    inner = enn.enn.with_gram(enn.enn.gram(features), ridge=ridge)
    return enn.with_enn(inner)  # pyright: ignore[reportReturnType]
