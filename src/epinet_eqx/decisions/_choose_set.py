"""Choosing several candidates under a reward of the whole set (the form of Appendix B)."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from .._checks import (
    Scalar,
    as_real_array,
    check_available,
    check_finite,
    check_function,
    check_key,
    check_mask,
    check_scalar,
    require,
)

SetReward = Callable[[Shaped[Array, " candidates"], Bool[Array, " candidates"]], Float[Array, ""]]
Summary = Callable[[Float[Array, " samples"]], Float[Array, ""]]


class SetChoice(NamedTuple):
    """A set in the order in which it was chosen.

    Attributes:
        positions: positions of the chosen candidates.
        rewards: expected reward of the set (or the `summary` asked for) after each choice; the last one is that of the
            whole set.
    """

    positions: Int[Array, " size"]
    rewards: Float[Array, " size"]


def any_success(outcomes: Shaped[Array, " candidates"], chosen: Bool[Array, " candidates"]) -> Float[Array, ""]:
    """Return 1 if the outcome of at least one chosen candidate is positive, and 0 otherwise: one hit suffices."""
    return jnp.any((outcomes > 0) & chosen).astype(float)


def largest_outcome(outcomes: Shaped[Array, " candidates"], chosen: Bool[Array, " candidates"]) -> Float[Array, ""]:
    """Return the largest outcome of the set: its expectation is the expected maximum."""
    return jnp.max(jnp.where(chosen, outcomes.astype(float), -jnp.inf))


def holds_best(outcomes: Shaped[Array, " candidates"], chosen: Bool[Array, " candidates"]) -> Float[Array, ""]:
    """Return 1 if the set holds the best of all candidates, else 0: its expectation is the probability of optimality.

    Equally good candidates share: a set with one of two best ones has 1/2.
    """
    best = (outcomes == jnp.max(outcomes)).astype(float)
    return jnp.sum(jnp.where(chosen, best, 0.0)) / jnp.sum(best)


class Improvement(eqx.Module):
    """By how much the largest outcome of the set exceeds the best one known so far, and 0 if it does not."""

    best: Float[Array, ""]

    def __init__(self, best: Scalar):
        """Initialize with the best outcome known so far."""
        self.best = check_scalar("best", best)

    def __call__(self, outcomes: Shaped[Array, " candidates"], chosen: Bool[Array, " candidates"]) -> Float[Array, ""]:
        """Return the improvement."""
        return jnp.maximum(largest_outcome(outcomes, chosen) - self.best, 0.0)


def _check_outcomes(outcomes: Shaped[Array, "samples candidates"]) -> Shaped[Array, "samples candidates"]:
    """Return joint samples, which must be finite and neither without samples nor without candidates."""
    outcomes = as_real_array("outcomes", outcomes)
    if outcomes.ndim != 2 or outcomes.size == 0:
        raise ValueError(f"`outcomes` must have shape (samples, candidates) and not be empty; got {outcomes.shape}.")
    return check_finite("outcomes", outcomes)


def as_independent(outcomes: Shaped[Array, "samples candidates"], *, key: PRNGKeyArray) -> Array:
    """Return samples with the same marginals but independent candidates: each column is permuted on its own.

    The result is what a marginal prediction (Eq. 1) knows of the outcomes.
    """
    check_key("key", key)
    return jr.permutation(key, _check_outcomes(outcomes), axis=0, independent=True)


def set_reward(
    reward_fn: SetReward,
    outcomes: Shaped[Array, "samples candidates"],
    chosen: Bool[Array, " candidates"],
    *,
    summary: Summary = jnp.mean,
) -> Float[Array, ""]:
    """Return the mean over samples of the reward of a set.

    Args:
        reward_fn: maps the outcomes of all candidates and the set to a reward.
        outcomes: joint samples of the outcomes of all candidates, such as those of `sample_labels`.
        chosen: which candidates are in the set.
        summary: maps the rewards of all samples to a number, if not by their mean.
    """
    check_function("reward_fn", reward_fn)
    check_function("summary", summary)
    outcomes = _check_outcomes(outcomes)
    chosen = check_mask("chosen", chosen, outcomes.shape[1])
    rewards = jax.vmap(reward_fn, in_axes=(0, None))(outcomes, chosen)
    return summary(check_finite("reward_fn(outcomes, chosen)", rewards))


def choose_set(
    reward_fn: SetReward,
    outcomes: Shaped[Array, "samples candidates"],
    size: int,
    *,
    available: Bool[Array, " candidates"] | None = None,
    summary: Summary = jnp.mean,
) -> SetChoice:
    """Choose candidates greedily by the expected reward of the set.

    The samples must be coherent: one index for all candidates of a sample. For an expected reward that is zero without
    candidates, never falls with more of them and has diminishing returns, the greedy set earns at least 63 percent of
    the best one: `any_success` and `Improvement` are such rewards, whatever their range. For others, such as
    `largest_outcome` of outcomes below zero or a quantile as the `summary`, there is no guarantee.

    Args:
        reward_fn: maps the outcomes of all candidates and the set to a reward: `any_success`, `largest_outcome`,
            `holds_best`, `Improvement(best)` or your own.
        outcomes: joint samples of the outcomes of all candidates, such as those of `sample_labels` or `sample_values`.
        size: how many candidates to choose.
        available: which candidates may be chosen; by default all.
        summary: maps the rewards of all samples to a number, if not by their mean: `functools.partial(jnp.quantile,
            q=0.1)` is the reward that a set exceeds in nine samples of ten.
    """
    check_function("reward_fn", reward_fn)
    check_function("summary", summary)
    outcomes = _check_outcomes(outcomes)
    num_candidates = outcomes.shape[1]
    free = check_available("size", size, num_candidates, available)
    if (shape := jax.eval_shape(reward_fn, outcomes[0], free).shape) != ():
        raise ValueError(f"`reward_fn` must return the reward of the set, a scalar; got shape {shape}.")

    def with_candidate(chosen: Bool[Array, " candidates"], number: Int[Array, ""]) -> tuple[Array, Array]:
        rewards = jax.vmap(reward_fn, in_axes=(0, None))(outcomes, chosen.at[number].set(True))
        return summary(rewards), jnp.all(jnp.isfinite(rewards))

    def step(chosen: Bool[Array, " candidates"], _: None) -> tuple[Bool[Array, " candidates"], tuple[Array, ...]]:
        # One candidate at a time: memory does not grow with the square of their number.
        rewards, finite = jax.lax.map(lambda number: with_candidate(chosen, number), jnp.arange(num_candidates))
        best = jnp.argmax(jnp.where(free & ~chosen, rewards, -jnp.inf))
        return chosen.at[best].set(True), (best, rewards[best], jnp.all(finite))

    _, (positions, rewards, finite) = jax.lax.scan(step, jnp.zeros(num_candidates, dtype=bool), length=size)
    rewards = require(rewards, ~jnp.all(finite), "`reward_fn(outcomes, chosen)` must be finite.")
    return SetChoice(positions, rewards)
