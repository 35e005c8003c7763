"""The one formula behind joint predictions: log-probabilities weighted by counts (Eq. 2, Appendix E)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ._stream import Draws, LogSum

# Stands for minus infinity in a product with counts: times zero it is zero, and what it occurs in is below half of it.
_IMPOSSIBLE = -1e30


def weigh_counts(
    counts: Float[Array, "... cases outcomes"], log_p: Float[Array, "samples ... outcomes"]
) -> Float[Array, "samples ... cases"]:
    """Return `counts @ log_p` for each sample and group: the log-probability of outcomes that occur so many times.

    An impossible outcome that does not occur contributes nothing: zero times minus infinity is zero here.
    """
    # Counts weigh up to tau log-probabilities: a product in reduced precision would show in the result.
    log_p = log_p.astype(counts.dtype)
    possible = jnp.where(jnp.isneginf(log_p), jnp.full_like(log_p, _IMPOSSIBLE), log_p)
    weighed = jnp.einsum("s...o,...co->s...c", possible, counts, precision=jax.lax.Precision.HIGHEST)
    return jnp.where(weighed < _IMPOSSIBLE / 2, -jnp.inf, weighed)


def count_log_probs(
    log_p_at: Callable[[Shaped[Array, "samples ..."]], Float[Array, "samples ... outcomes"]],
    counts: Float[Array, "... cases outcomes"],
    draws: Draws,
) -> Float[Array, "... cases"]:
    r"""Return $\log \frac{1}{M} \sum_m \exp(\text{counts} \cdot \log p_m)$, streamed over the indices.

    An outcome is whatever has a probability given the index: a label at an anchor, say. A case is a set of outcomes
    with repetition. No check is made for NaN.

    Args:
        log_p_at: maps indices to the log-probabilities of the outcomes there.
        counts: how many times each outcome occurs in each case; the same for all groups if it has no axes for them.
        draws: the indices to average over.
    """
    shape = jax.eval_shape(lambda: weigh_counts(counts, log_p_at(draws.take(1, 0)))).shape[1:]
    sums = draws.fold(lambda sums, zs, valid: sums.add(weigh_counts(counts, log_p_at(zs)), valid), LogSum.zeros(shape))
    return sums.log_mean(draws.num_samples)
