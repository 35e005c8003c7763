"""The posterior of one testbed problem: seconds until it is sampled, and operations against the limit."""

import time

import jax
import jax.random as jr

from epinet_eqx import named_keys
from epinet_eqx.testbed import BayesAgent, find_setting, generate_problems, problem_keys

from ._measure import Ratio, matmul_rate

_SETTING = "d10_lambda10_rho0.01_seed0"
_NUM_CHAINS = 64


def main() -> list[Ratio]:
    """Return the seconds of one problem with 100 examples, and the share of a matrix product's rate."""
    setting = find_setting(_SETTING)
    problem_key, agent_key = named_keys(jr.key(0), "problems", "agents")
    problems = generate_problems([setting], key=problem_key)
    keys = problem_keys([setting], key=agent_key)
    agent = BayesAgent(num_chains=_NUM_CHAINS)
    jax.block_until_ready(agent.sample(problems, keys=keys)[1])
    start = time.perf_counter()
    found = jax.block_until_ready(agent.sample(problems, keys=keys)[1])
    seconds = time.perf_counter() - start
    # A gradient takes twice the two products of a forward pass, and these; one product counts two operations a weight.
    weights = found.positions.shape[-1]
    operations = 6 * weights * setting.num_train * _NUM_CHAINS * int(found.num_gradients[0])
    rate = operations / seconds
    limit = matmul_rate()
    words = f"{rate / 1e9:.0f} of {limit / 1e9:.0f} GFLOP/s"
    return [
        Ratio(f"posterior: seconds of {_NUM_CHAINS} chains at 10 inputs, 100 examples", seconds, 60.0, True),
        Ratio(f"posterior: useful operations per second over a matrix product's ({words})", rate / limit, 0.1),
    ]
