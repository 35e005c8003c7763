"""Bounds on the spectral norms of a network's layers (Miyato et al., 2018), as in SNGP."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import Scalar, check_positive, check_scalar, refuse_nan
from .._tree import Frozen, trainable_mask
from ..networks import AbstractNetwork, AbstractStatefulNetwork, ImageConv

_T = TypeVar("_T")
Where = Callable[[Any], Sequence[Array]]


def spectral_norm(weight: Float[Array, "out ..."], *, num_iterations: int = 8) -> Float[Array, ""]:
    """Return the largest singular value of a weight, read as a matrix from all inputs of an output to the outputs.

    By power iteration from the longest row, without state between steps, so that training stays a pure function. The
    result is a lower bound, within a few percent for typical matrices. For a convolution it is the norm of the map from
    one patch to one pixel, which bounds that of the whole convolution up to a factor of the side of its kernel.

    Args:
        weight: a matrix, or the kernel of a convolution.
        num_iterations: number of iterations.
    """
    check_positive("num_iterations", num_iterations)
    refuse_nan("weight", weight)
    matrix = weight.reshape(weight.shape[0], -1)
    fixed = jax.lax.stop_gradient(matrix)

    def unit(vector: Float[Array, " size"]) -> Float[Array, " size"]:
        return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-12)

    start = fixed[jnp.argmax(jnp.sum(jnp.square(fixed), axis=1))]
    right = jax.lax.fori_loop(0, num_iterations, lambda _, v: unit((fixed @ v) @ fixed), unit(start))
    # With both vectors stopped, the gradient is that of the largest singular value.
    return unit(fixed @ right) @ matrix @ right


def spectral_bound(network: _T, bound: Scalar = 6.0, *, where: Where | None = None, num_iterations: int = 8) -> _T:
    """Return a network whose weights are scaled down where their `spectral_norm` exceeds the bound.

    Args:
        network: any module.
        bound: the largest norm allowed.
        where: selects the weights; by default all trainable arrays with at least two axes. The reference leaves the
            first convolution out.
        num_iterations: power iterations per weight.
    """
    value = check_scalar("bound", bound, minimum=1e-6)
    # Kernels of image networks have their outputs last, all other weights first.
    nodes = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, ImageConv))
    kernels = {id(node.weight) for node in nodes if isinstance(node, ImageConv)}

    def scaled(weight: Array) -> Array:
        matrix = jnp.moveaxis(weight, -1, 0) if id(weight) in kernels else weight
        norm = spectral_norm(matrix, num_iterations=num_iterations)
        return weight * jnp.where(norm > value, value / jnp.maximum(norm, value), 1.0).astype(weight.dtype)

    if where is not None:
        return eqx.tree_at(where, network, replace_fn=scaled)
    trained, rest = eqx.partition(network, trainable_mask(network))
    # An empty weight, as in a `headless` network, has no norm.
    trained = jax.tree.map(lambda leaf: scaled(leaf) if leaf.ndim >= 2 and leaf.size > 0 else leaf, trained)
    return eqx.combine(trained, rest)


class SpectrallyBounded(AbstractNetwork):
    """A network with `spectral_bound` applied at every call, so that the bound holds throughout training and after it.

    Gradients go through the scaling, which depends only on the weights, so a `vmap` over inputs computes it once.
    """

    network: AbstractNetwork
    bound: Frozen[Float[Array, ""]]
    where: Where | None = eqx.field(static=True)

    def __init__(self, network: AbstractNetwork, bound: Scalar = 6.0, *, where: Where | None = None):
        """Initialize with a network, the bound, and the weights it applies to (see `spectral_bound`)."""
        self.network = network
        self.bound = Frozen(check_scalar("bound", bound, minimum=1e-6))
        self.where = where

    def bounded(self) -> AbstractNetwork:
        """Return the network with scaled weights."""
        return spectral_bound(self.network, self.bound.value, where=self.where)

    @property
    def feature_dim(self) -> int | None:
        """The size of the feature vector, if the network knows it."""
        return self.network.feature_dim

    def with_features(self, x: PyTree[Array]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return output and features of the network with scaled weights."""
        return self.bounded().with_features(x)


class SpectrallyBoundedStateful(AbstractStatefulNetwork):
    """`SpectrallyBounded` for a network with running statistics; its normalizations stay unchanged."""

    network: AbstractStatefulNetwork
    bound: Frozen[Float[Array, ""]]
    where: Where | None = eqx.field(static=True)

    def __init__(self, network: AbstractStatefulNetwork, bound: Scalar = 6.0, *, where: Where | None = None):
        """Initialize with a network, the bound, and the weights it applies to (see `spectral_bound`)."""
        self.network = network
        self.bound = Frozen(check_scalar("bound", bound, minimum=1e-6))
        self.where = where

    def bounded(self) -> AbstractStatefulNetwork:
        """Return the network with scaled weights."""
        return spectral_bound(self.network, self.bound.value, where=self.where)

    @property
    def feature_dim(self) -> int:
        """The size of the pooled features."""
        return self.network.feature_dim

    def with_features(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"], eqx.nn.State]:
        """Return output, features and new state of the network with scaled weights."""
        return self.bounded().with_features(x, state, key=key)

    def stages(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> dict[str, Float[Array, "..."]]:
        """Return the outputs of all stages of the network with scaled weights for one image."""
        return self.bounded().stages(x, state, key=key)

    def with_masks(self) -> "SpectrallyBoundedStateful":
        """Return the network with dropout enabled."""
        return SpectrallyBoundedStateful(self.network.with_masks(), self.bound.content, where=self.where)
