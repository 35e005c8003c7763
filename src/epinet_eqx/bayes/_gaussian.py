"""Gaussian distributions over parameters: Bayes by backprop and SWAG (Section 3.2)."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_finite, check_shape, is_traced, require
from .._tree import Frozen
from ..indices import GaussianIndex
from ._bnn import AbstractBNN
from ._parameters import Skeleton, split_parameters


class BayesByBackprop(AbstractBNN):
    r"""A mean-field Gaussian over the parameters of a network (Blundell et al., 2015).

    The parameters at index $z \sim N(0, I)$ are $\hat\theta = \mu + \sigma \odot z$, with $\sigma$ the softplus of
    $\rho$: the transport map in the proof of Theorem 3. Train $\mu$ and $\rho$ with the penalty `losses.GaussianKL` or
    `losses.ScaleMixtureKL`. Parameters inside a `Frozen` part of the network stay fixed.
    """

    mean: Float[Array, " parameters"]
    rho: Float[Array, " parameters"]
    skeleton: Skeleton
    index: GaussianIndex

    def __init__(self, network: Callable[[PyTree[Array]], Any], *, sigma_init: float = 0.01):
        r"""Initialize at a network.

        Args:
            network: any module that maps one example to its output; its parameters initialize $\mu$.
            sigma_init: initial value of all entries of $\sigma$.
        """
        if not (sigma_init > 0 and math.isfinite(sigma_init)):
            raise ValueError(f"`sigma_init` must be positive and finite; got {sigma_init}.")
        self.mean, self.skeleton = split_parameters(network)
        # The inverse of softplus, in a form that neither overflows nor loses small values.
        self.rho = jnp.full_like(self.mean, sigma_init + math.log(-math.expm1(-sigma_init)))
        self.index = GaussianIndex(self.skeleton.size)

    @property
    def sigma(self) -> Float[Array, " parameters"]:
        """The standard deviation of each parameter."""
        return jax.nn.softplus(self.rho)

    def parameters_at(self, z: Float[Array, " index"]) -> Float[Array, " parameters"]:
        r"""Return $\hat\theta = \mu + \sigma \odot z$."""
        check_shape("z", z, self.index.shape)
        return self.mean + self.sigma * z

    def network_at(self, z: Float[Array, " index"]) -> Any:
        """Return the network with the parameters of `z`."""
        return self.skeleton.build(self.parameters_at(z))


class SWAGState(eqx.Module):
    """The statistics that SWAG collects along a trajectory: mean, variance and last deviations of the parameters.

    Start from `SWAGState.init(module, rank)`, call `state = state.update(module)` during training, for instance once
    per epoch, then build `SWAG(state)`. An update is pure and works inside `jit` and `scan`.
    """

    mean: Float[Array, " parameters"]
    squares: Float[Array, " parameters"]
    deviations: Float[Array, "rank parameters"]
    count: Int[Array, ""]
    skeleton: Skeleton

    @classmethod
    def init(cls, module: PyTree, rank: int) -> "SWAGState":
        """Return the state before the first update.

        Args:
            module: the module that is trained; only its structure is used.
            rank: number of deviations to keep, the rank of the covariance beyond its diagonal.
        """
        if isinstance(rank, bool) or rank < 2:
            raise ValueError(f"`rank` must be at least 2; got {rank!r}.")
        vector, skeleton = split_parameters(module)
        zeros = jnp.zeros_like(vector)
        return cls(zeros, zeros, jnp.zeros((rank, vector.size)), jnp.zeros((), dtype=int), skeleton)

    def update(self, module: PyTree) -> "SWAGState":
        """Return the state after an update with the parameters of `module`."""
        vector = self.skeleton.flatten(module)
        count = self.count + 1
        before = vector - self.mean
        mean = self.mean + before / count.astype(vector.dtype)
        after = vector - mean
        deviations = self.deviations.at[self.count % self.deviations.shape[0]].set(after)
        # Welford's sum of squares: the difference of two large moments would lose a small variance to rounding.
        return SWAGState(mean, self.squares + before * after, deviations, count, self.skeleton)


class SWAG(AbstractBNN):
    r"""A network with the Gaussian of SWAG over its parameters (Maddox et al., 2019).

    $\hat\theta = \bar\theta + (\Sigma_{\mathrm{diag}}^{1/2} z_1 + D z_2 / \sqrt{K - 1}) / \sqrt 2$, where $D$ holds the
    last $K$ deviations from the running mean. It is not trained further.
    """

    mean: Frozen[Float[Array, " parameters"]]
    std: Frozen[Float[Array, " parameters"]]
    factor: Frozen[Float[Array, "rank parameters"]]
    skeleton: Skeleton
    index: GaussianIndex

    def __init__(self, state: SWAGState):
        """Initialize from a state with at least two updates."""
        found = "" if is_traced(state.count) else f"; got {int(state.count)}"
        count = require(state.count, state.count < 2, f"`state` must have seen at least 2 updates{found}.")
        rank, size = state.deviations.shape
        mean, squares, deviations = check_finite("state", (state.mean, state.squares, state.deviations))
        columns = jnp.minimum(count, rank).astype(mean.dtype)
        self.mean = Frozen(mean)
        self.std = Frozen(jnp.sqrt(squares / (2 * count.astype(mean.dtype))))
        self.factor = Frozen(deviations / jnp.sqrt(2 * (columns - 1)))
        self.skeleton = state.skeleton
        self.index = GaussianIndex(size + rank)

    def network_at(self, z: Float[Array, " index"]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        """Return the network with the parameters of one index."""
        diagonal, low_rank = jnp.split(z, [self.skeleton.size])
        return self.skeleton.build(self.mean.value + self.std.value * diagonal + low_rank @ self.factor.value)
