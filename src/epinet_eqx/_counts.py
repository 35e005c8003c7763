"""Joint log-probabilities by counts: how often each outcome occurs is all that they depend on (Appendix E)."""

import functools as ft
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from ._checks import check_positive
from ._draws import Draws, LogSum

MAX_LABELS = 10_000
"""More labels of one input are not counted: tables have a row for each number of them, or as many columns, too."""

# Finite stand-in for -inf, so that 0 * log 0 = 0 in a product with counts; a case that contains it is below half of it.
_IMPOSSIBLE = -1e30


@ft.cache
def outcome_cases(tau: int, num_outcomes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all ways in which tau draws fall on some outcomes, and the logarithm of the number of orders of each.

    Returns:
        Counts of shape (cases, outcomes) whose rows add up to tau, and their log multinomial coefficients.
    """
    places = tau + num_outcomes - 1
    bars = np.array([*itertools.combinations(range(places), num_outcomes - 1)], dtype=int).reshape(-1, num_outcomes - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, places)))
    counts = np.diff(edges, axis=1) - 1
    # Logarithms, since the binomial coefficients of tau = 100 are beyond single precision.
    log_factorials = np.array([math.lgamma(n + 1) for n in range(tau + 1)])
    return counts.astype(np.float32), log_factorials[tau] - log_factorials[counts].sum(axis=1)


def check_num_labels(name: str, value: int) -> None:
    """Raise unless `value` is a number of labels that can be counted."""
    check_positive(name, value)
    if value > MAX_LABELS:
        raise ValueError(f"`{name}` must be at most {MAX_LABELS}; got {value}.")


def dyadic_cases(tau: int) -> tuple[Float[Array, "cases 2"], Float[Array, " cases"]]:
    """Return how tau draws can fall on two anchors, and the binomial probability of each way."""
    check_num_labels("tau", tau)
    counts, log_orders = outcome_cases(tau, 2)
    return jnp.asarray(counts, dtype=float), jnp.asarray(np.exp(log_orders - tau * math.log(2)), dtype=float)


def average_cases(weights: Float[Array, " cases"], log_probs: Float[Array, "groups cases"]) -> Float[Array, " groups"]:
    """Return the average over cases; minus infinity if a case is impossible, also where its weight underflows."""
    terms = jnp.where(jnp.isneginf(log_probs), log_probs, weights[None, :] * log_probs)
    return jnp.sum(terms, axis=1)


def weigh_counts(
    counts: Float[Array, "... cases outcomes"], log_p: Float[Array, "samples ... outcomes"]
) -> Float[Array, "samples ... cases"]:
    """Return `counts @ log_p` for each sample and group: the log-probability of outcomes that occur this many times.

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

    An outcome is any event with a probability given the index, such as a label at an anchor. A case is a multiset of
    outcomes. No check is made for NaN.

    Args:
        log_p_at: maps indices to the log-probabilities of the outcomes there.
        counts: how many times each outcome occurs in each case; the same for all groups if it has no axes for them.
        draws: the indices to average over.
    """
    shape = jax.eval_shape(lambda: weigh_counts(counts, log_p_at(draws.take(1, 0)))).shape[1:]
    sums = draws.fold(lambda sums, zs, valid: sums.add(weigh_counts(counts, log_p_at(zs)), valid), LogSum.zeros(shape))
    return sums.log_mean(draws.num_samples)
