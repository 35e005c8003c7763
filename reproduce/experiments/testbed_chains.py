"""Whether chains of `sgmcmc` have converged: two for each problem, and their agreement in predicted probabilities."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.bayes import split_r_hat
from epinet_eqx.testbed import evaluate

from ..configs.testbed import ChainOf
from ..record import Row
from .testbed import groups as groups
from .testbed import train

_NUM_CHAINS = 2
_NUM_INPUTS = 200


@eqx.filter_jit
def _predicted(enns: AbstractENN, xs: Float[Array, "inputs features"]) -> Float[Array, "problems samples inputs"]:
    """Return the probability of the first class by each sample of each chain."""

    def of_chain(enn: Any) -> Float[Array, "samples inputs"]:
        outputs = jax.vmap(lambda x: enn.heads(enn.embed(x), enn.index.support()))(xs)
        return jax.nn.softmax(outputs)[..., 0].T

    return eqx.filter_vmap(of_chain)(enns)


def run(configs: Sequence[ChainOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the divergence of each of two chains per problem, and R-hat over test inputs: the median and the largest.

    R-hat is that of the predicted probabilities: weights have symmetries, and never agree.
    """
    config = configs[0]
    problem_key, input_key = named_keys(key, "problems", "inputs")
    chains, estimates, rows = [], [], []
    for number in range(_NUM_CHAINS):
        trained = train(config.variant, [other.problem for other in configs], key=problem_key, chain=number)
        xs = jr.normal(input_key, (_NUM_INPUTS, trained.settings[0].input_dim))
        chains.append(_predicted(trained.enns, xs))
        found = evaluate(trained.enns, trained.problems, num_batches=config.num_batches, keys=trained.test_keys)
        estimates.append(jax.device_get({tau: estimate.mean for tau, estimate in found.items()}))
        rows.append(trained)
    r_hats = jax.device_get(jax.vmap(split_r_hat, in_axes=1)(jnp.stack(chains)))
    return [
        [
            {
                **rows[0].row(config.variant, number),
                "num_steps": config.num_steps,
                "chain": chain,
                "marginal": estimates[chain][1][number],
                "joint": estimates[chain][10][number],
                "median_r_hat": float(np.median(r_hats[number])),
                "largest_r_hat": float(np.max(r_hats[number])),
                "seconds": round(rows[chain].seconds, 3),
            }
            for chain in range(_NUM_CHAINS)
        ]
        for number in range(len(configs))
    ]
