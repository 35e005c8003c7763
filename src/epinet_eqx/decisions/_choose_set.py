"""Choosing several candidates under a reward of the whole set (the form of Appendix B)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from .._checks import check_available, check_finite
from ._checks import check_unit_interval

SetReward = Callable[[Shaped[Array, " candidates"], Bool[Array, " candidates"]], Float[Array, ""]]


class SetChoice(NamedTuple):
    """A set in the order in which it was chosen.

    Attributes:
        positions: positions of the chosen candidates.
        rewards: expected reward of the set after each choice; the last one is that of the whole set.
    """

    positions: Int[Array, " size"]
    rewards: Float[Array, " size"]


def any_success(outcomes: Shaped[Array, " candidates"], chosen: Bool[Array, " candidates"]) -> Float[Array, ""]:
    """Return 1 if the outcome of at least one chosen candidate is positive, and 0 otherwise: one hit suffices."""
    return jnp.any((outcomes > 0) & chosen).astype(float)


def as_independent(outcomes: Shaped[Array, "samples candidates"], *, key: PRNGKeyArray) -> Array:
    """Return samples with the same marginals but independent candidates: each column is permuted on its own.

    It is what a marginal prediction (Eq. 1) knows of the outcomes.
    """
    return jr.permutation(key, outcomes, axis=0, independent=True)


def set_reward(
    reward_fn: SetReward, outcomes: Shaped[Array, "samples candidates"], chosen: Bool[Array, " candidates"]
) -> Float[Array, ""]:
    """Return the mean over samples of the reward of a set.

    Args:
        reward_fn: maps the outcomes of all candidates and the set to a reward between 0 and 1.
        outcomes: joint samples of the outcomes of all candidates, such as those of `sample_labels`.
        chosen: which candidates are in the set.
    """
    rewards = jax.vmap(reward_fn, in_axes=(0, None))(check_finite("outcomes", outcomes), chosen)
    return jnp.mean(check_unit_interval("reward_fn(outcomes, chosen)", rewards))


def choose_set(
    reward_fn: SetReward,
    outcomes: Shaped[Array, "samples candidates"],
    size: int,
    *,
    available: Bool[Array, " candidates"] | None = None,
) -> SetChoice:
    """Choose candidates greedily by the expected reward of the set.

    The samples must be coherent: one index for all candidates of a sample. For a reward that has diminishing returns
    the greedy set earns at least 63 percent of the best one.

    Args:
        reward_fn: maps the outcomes of all candidates and the set to a reward between 0 and 1.
        outcomes: joint samples of the outcomes of all candidates, such as those of `sample_labels`.
        size: how many candidates to choose.
        available: which candidates may be chosen; by default all.
    """
    if outcomes.ndim != 2 or outcomes.size == 0:
        raise ValueError(f"`outcomes` must have shape (samples, candidates) and not be empty; got {outcomes.shape}.")
    outcomes = check_finite("outcomes", outcomes)
    num_candidates = outcomes.shape[1]
    free = check_available("size", size, num_candidates, available)
    if (shape := jax.eval_shape(reward_fn, outcomes[0], free).shape) != ():
        raise ValueError(f"`reward_fn` must return the reward of the set, a scalar; got shape {shape}.")

    def with_candidate(chosen: Bool[Array, " candidates"], number: Int[Array, ""]) -> tuple[Array, Array, Array]:
        rewards = jax.vmap(reward_fn, in_axes=(0, None))(outcomes, chosen.at[number].set(True))
        return jnp.mean(rewards), jnp.min(rewards), jnp.max(rewards)

    def step(chosen: Bool[Array, " candidates"], _: None) -> tuple[Bool[Array, " candidates"], tuple[Array, ...]]:
        # One candidate at a time: memory does not grow with the square of their number.
        rewards, low, high = jax.lax.map(lambda number: with_candidate(chosen, number), jnp.arange(num_candidates))
        best = jnp.argmax(jnp.where(free & ~chosen, rewards, -jnp.inf))
        return chosen.at[best].set(True), (best, rewards[best], jnp.min(low), jnp.max(high))

    _, (positions, rewards, low, high) = jax.lax.scan(step, jnp.zeros(num_candidates, dtype=bool), length=size)
    check = check_unit_interval("reward_fn(outcomes, chosen)", jnp.stack([low, high]))
    # The rewards depend on the check, so that it also runs inside compiled programs.
    return SetChoice(positions, rewards + 0 * jnp.sum(check))
