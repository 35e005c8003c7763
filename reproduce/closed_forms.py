"""What the theory says in closed form; derived where it is used in `experiments/`."""

import math


def largest_reward(tau: int) -> float:
    """Return what the best action can earn under the reward of Theorem 1's proof: 1 for even `tau`, less for odd."""
    return 1.0 if tau % 2 == 0 else 1.0 - 1.0 / tau**2


def guess_reward(tau: int) -> float:
    """Return what a random guess earns there."""
    return 1.0 - 1.0 / tau


def least_kl(shortfall: float) -> float:
    """Return the smallest divergence at which a shortfall of at most 1 is possible (Theorem 2, sharpened)."""
    if shortfall >= 1:
        return math.log(2)
    return ((1 + shortfall) * math.log1p(shortfall) + (1 - shortfall) * math.log1p(-shortfall)) / 2
