"""Closed forms of the theory; derived where `experiments/` uses them."""

import math


def largest_reward(tau: int) -> float:
    """Return the reward of the best action under the reward of Theorem 1's proof: 1 for even `tau`, less for odd."""
    return 1.0 if tau % 2 == 0 else 1.0 - 1.0 / tau**2


def guess_reward(tau: int) -> float:
    """Return the reward of a random guess there."""
    return 1.0 - 1.0 / tau


def least_kl(shortfall: float) -> float:
    """Return the smallest divergence at which a shortfall of at most 1 is possible (Theorem 2, sharpened)."""
    if shortfall >= 1:
        return math.log(2)
    return ((1 + shortfall) * math.log1p(shortfall) + (1 - shortfall) * math.log1p(-shortfall)) / 2
