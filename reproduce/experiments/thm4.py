"""Theorem 4: the linear-Gaussian epinet approaches the exact posterior as the dimension of its index grows."""

from jaxtyping import PRNGKeyArray

from epinet_eqx import named_keys

from ..artifacts.thm4 import EpinetOnData
from ..record import Row
from .generators import numpy_generator
from .linear_gaussian import draw_problem
from .thm4_convergence import convergence
from .thm4_training import training


def run(config: EpinetOnData, *, key: PRNGKeyArray) -> list[Row]:
    """Return how far epinets are from the posterior: minimizers in closed form, and trained ones."""
    problem_key, test_key, seeds_key, training_key = named_keys(key, "problem", "test", "seeds", "training")
    problem = draw_problem(
        config.num_data,
        config.in_dim,
        noise_scale=config.noise_scale,
        prior_scale=config.prior_scale,
        key=problem_key,
    )
    inputs = numpy_generator(test_key).standard_normal((config.num_batches, config.tau, config.in_dim))
    rows = convergence(config, problem, inputs, key=seeds_key)
    if config.training is not None:
        rows += training(config.training, problem, inputs, key=training_key)
    return [{"num_data": config.num_data, "tau": config.tau, **row} for row in rows]
