"""Intervals of a regression: quantiles of the predictive distribution, noise included (Section 3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from .._checks import check_level, require
from .._draws import Draws, check_draws, map_batches
from .._enn import AbstractENN
from .._examples import check_examples
from .._likelihoods import AbstractLikelihood, AbstractNumeric, check_numeric
from ._samples import sample_at

# Number of distribution functions evaluated together.
_BLOCK = 2**21
_MAX_BATCH = 1024
_MAX_STEPS = 200


class Interval(eqx.Module):
    """Central intervals, one per target: each end has the same probability beyond it.

    Attributes:
        lower: the lower ends.
        upper: the upper ends.
        level: the probability of each interval; for integers a lower bound of it.
    """

    lower: Float[Array, "batch targets"]
    upper: Float[Array, "batch targets"]
    level: float = eqx.field(static=True)

    @property
    def width(self) -> Float[Array, "batch targets"]:
        """The distance of the ends."""
        return self.upper - self.lower


def _quantiles(
    likelihood: AbstractNumeric, outputs: Float[Array, "samples batch classes"], probs: Float[Array, " ends"]
) -> Float[Array, "ends batch targets"]:
    """Return the quantiles of the mixture over samples, by bisection."""
    over_batch = jax.vmap(jax.vmap(likelihood.cdf), in_axes=(0, None))

    def reached(y: Float[Array, "ends batch targets"]) -> Bool[Array, "ends batch targets"]:
        cdf = jax.vmap(lambda own: jnp.mean(over_batch(outputs, own), axis=0))(y)
        return cdf >= probs[:, None, None]

    means = jax.vmap(jax.vmap(likelihood.mean))(outputs)
    shape = (probs.size, *means.shape[1:])
    low, high = (jnp.broadcast_to(end, shape) for end in (jnp.min(means, axis=0), jnp.max(means, axis=0)))
    step = jnp.maximum(high - low, 1e-3 * jnp.maximum(jnp.abs(low), jnp.abs(high)) + 1e-6)

    # A quantile is between the means, or a few doublings of their distance beyond them.
    def outside(carry: tuple[Array, Array, Array, Array]) -> Array:
        low, high, _, number = carry
        return (number < _MAX_STEPS) & (jnp.any(reached(low)) | jnp.any(~reached(high)))

    def widen(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        low, high, step, number = carry
        low, high = jnp.where(reached(low), low - step, low), jnp.where(reached(high), high, high + step)
        return low, high, 2 * step, number + 1

    low, high, _, _ = jax.lax.while_loop(outside, widen, (low, high, step, jnp.zeros((), jnp.int32)))
    eps = jnp.finfo(high.dtype).eps
    wanted = 8 * eps * (high - low)

    def is_close(low: Array, high: Array) -> Array:
        return high - low <= wanted + 4 * eps * jnp.maximum(jnp.abs(low), jnp.abs(high))

    def unsure(carry: tuple[Array, Array, Array]) -> Array:
        low, high, number = carry
        return (number < _MAX_STEPS) & ~jnp.all(is_close(low, high))

    def halve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, number = carry
        middle = 0.5 * low + 0.5 * high
        above = reached(middle)
        return jnp.where(above, low, middle), jnp.where(above, middle, high), number + 1

    low, high, _ = jax.lax.while_loop(unsure, halve, (low, high, jnp.zeros((), jnp.int32)))
    # The ends of some distributions are beyond the largest number, and nothing was bracketed.
    found = jnp.isfinite(wanted) & is_close(low, high) & ~reached(low) & reached(high)
    return jnp.where(found, jnp.floor(high) if likelihood.is_discrete else high, jnp.nan)


@eqx.filter_jit
def _interval(
    enn: AbstractENN,
    x: PyTree[Array],
    length: int,
    probs: Float[Array, " ends"],
    draws: Draws,
    likelihood: AbstractNumeric,
    batch_size: int,
) -> Float[Array, "batch ends targets"]:
    """Return the ends of the intervals, batch by batch."""
    zs = draws.indices()

    def at(x: PyTree[Array]) -> Float[Array, "batch ends targets"]:
        outputs = sample_at(enn, x, zs, draws.chunk_size)
        return jnp.moveaxis(_quantiles(likelihood, outputs, probs), 0, 1)

    return map_batches(at, x, length=length, batch_size=batch_size)


def interval(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood,
    level: float = 0.95,
) -> Interval:
    r"""Return the central interval of each target: where a new measurement falls with probability `level`.

    The predictive distribution is the mixture $\int P_Z(dz) \, P(y \mid f(x, z))$ over the draws, noise included; its
    quantiles are found by bisection, so nothing is sampled but the index.

    Args:
        enn: the ENN, of a regression.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over; their outputs are in memory for some of the inputs at a time.
        likelihood: how an output becomes a distribution of the targets, noise included.
        level: the probability of the interval.
    """
    check_level("level", level)
    numeric = check_numeric(likelihood)
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    numeric.num_targets(examples.num_outputs)
    batch_size = draws.batch_size or min(_MAX_BATCH, max(1, _BLOCK // (2 * draws.num_samples * examples.num_outputs)))
    probs = jnp.array([(1 - level) / 2, (1 + level) / 2], dtype=float)
    ends = _interval(enn, examples.x, examples.length, probs, draws, numeric, batch_size)
    wrong = jnp.any(jnp.isnan(ends))
    ends = require(ends, wrong, "`enn` must output targets whose intervals can be told in this precision; got others.")
    return Interval(ends[:, 0], ends[:, 1], level)
