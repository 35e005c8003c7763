"""The choice among actions whose expected rewards are known (Theorem 1)."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .._checks import check_finite
from ._checks import check_actions


def best_actions(expected: Float[Array, " actions"], *, tolerance: float = 1e-5) -> Bool[Array, " actions"]:
    """Return which actions have the largest expected reward.

    Args:
        expected: expected reward of each action.
        tolerance: how far below the largest still counts as equal, so that rounding does not break a tie.
    """
    check_actions("expected", expected)
    if tolerance < 0:
        raise ValueError(f"`tolerance` must be at least 0; got {tolerance}.")
    expected = check_finite("expected", expected)
    return expected >= jnp.max(expected) - tolerance


def choice_probs(expected: Float[Array, " actions"], *, tolerance: float = 1e-5) -> Float[Array, " actions"]:
    """Return the probability of each action under the uniform choice among the best ones, as in Theorem 1."""
    best = best_actions(expected, tolerance=tolerance).astype(expected.dtype)
    return best / jnp.sum(best)


def choose_action(expected: Float[Array, " actions"], *, tolerance: float = 1e-5, key: PRNGKeyArray) -> Int[Array, ""]:
    """Draw one action uniformly from the best ones."""
    best = best_actions(expected, tolerance=tolerance)
    return jr.categorical(key, jnp.where(best, jnp.zeros_like(expected), -jnp.inf))
