"""Theorem 4: the linear-Gaussian epinet approaches the exact posterior as the dimension of its index grows."""

from jaxtyping import PRNGKeyArray

from ..configs import EpinetConvergence, EpinetTraining
from ..record import Row
from .thm4_convergence import convergence
from .thm4_training import training


def run(config: EpinetConvergence | EpinetTraining, *, key: PRNGKeyArray) -> list[Row]:
    """Run one unit."""
    if isinstance(config, EpinetTraining):
        return training(config, key=key)
    return convergence(config, key=key)
