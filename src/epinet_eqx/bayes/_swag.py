"""SWAG: a Gaussian fitted to the trajectory of SGD (Section 3.2)."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._checks import check_finite, is_traced, require
from .._tree import Frozen
from ..indices import GaussianIndex
from ._bnn import AbstractBNN
from ._parameters import Skeleton, split_parameters


class SWAGState(eqx.Module):
    """What SWAG collects along a trajectory: the mean, the variance and the last deviations of the parameters.

    Begin with `SWAGState.init(module, rank)`, call `state = state.update(module)` now and then while training, once per
    epoch say, and make `SWAG(state)` of it. An update is pure, and works inside `jit` and `scan`.
    """

    mean: Float[Array, " parameters"]
    squares: Float[Array, " parameters"]
    deviations: Float[Array, "rank parameters"]
    count: Int[Array, ""]
    skeleton: Skeleton

    @classmethod
    def init(cls, module: PyTree, rank: int) -> "SWAGState":
        """Return the state that has seen nothing yet.

        Args:
            module: the module that is trained; it gives the structure only.
            rank: number of deviations to keep, the rank of the covariance beyond its diagonal.
        """
        if isinstance(rank, bool) or rank < 2:
            raise ValueError(f"`rank` must be at least 2; got {rank!r}.")
        vector, skeleton = split_parameters(module)
        zeros = jnp.zeros_like(vector)
        return cls(zeros, zeros, jnp.zeros((rank, vector.size)), jnp.zeros((), dtype=int), skeleton)

    def update(self, module: PyTree) -> "SWAGState":
        """Return the state that has also seen the parameters of `module`."""
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
    last $K$ deviations from the running mean. Nothing of it is trained further.
    """

    mean: Frozen[Float[Array, " parameters"]]
    std: Frozen[Float[Array, " parameters"]]
    factor: Frozen[Float[Array, "rank parameters"]]
    skeleton: Skeleton
    index: GaussianIndex

    def __init__(self, state: SWAGState):
        """Initialize with what was collected, from at least two updates."""
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
