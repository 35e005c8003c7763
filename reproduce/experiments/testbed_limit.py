"""The testbed's limit: the divergence of the exact posterior, with diagnostics that can fail."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.bayes import Ensemble, split_r_hat
from epinet_eqx.testbed import (
    BayesAgent,
    Problem,
    evaluate,
    find_setting,
    generate_problems,
    problem_keys,
    take_member,
)

from ..configs.testbed_limit import Optimum
from ..record import Row

_NUM_RUNS = 2
_NUM_INPUTS = 100
_TAUS = (1, 10)


def groups(configs: Mapping[str, Optimum]) -> list[list[str]]:
    """Return the runs in groups of one shape of problem, which share a program."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        setting = find_setting(config.problem)
        found.setdefault((setting.input_dim, setting.num_train), []).append(name)
    return list(found.values())


@eqx.filter_jit
def _predicted(enn: AbstractENN, xs: Float[Array, "inputs features"]) -> Float[Array, "samples inputs"]:
    """Return the logit of the second class by each sample; its probability would be rounded to zero or one."""
    zs = enn.index.support()
    return jax.lax.map(lambda x: jnp.diff(enn.heads(enn.embed(x), zs))[:, 0], xs).T


def _divergences(enn: AbstractENN, problems: Problem, config: Optimum, keys: Any) -> dict[int, Any]:
    """Return the marginal and joint divergence of an ensemble, and their standard errors."""
    found = evaluate(enn, problems, taus=_TAUS, num_batches=config.num_batches, num_samples=None, keys=keys)
    return {tau: jax.device_get((estimate.mean[0], estimate.standard_error[0])) for tau, estimate in found.items()}


def score(configs: Sequence[Optimum], *, key: Any) -> Iterator[list[Row]]:
    """Yield the divergence of the posterior on problems of one shape, and how well two runs of the sampler agree.

    Problems and tests are those of the agents. Besides, the rank of the true probability among those of the samples, at
    one new input per problem: since the true model is a draw from the prior, ranks are uniform over problems if the
    samples are from the posterior.
    """
    problem_key, test_key, agent_key, input_key = named_keys(key, "problems", "tests", "bayes", "inputs")
    for config in configs:
        setting = find_setting(config.problem)
        agent = BayesAgent(num_chains=config.num_chains, num_samples=config.num_samples, thin=config.thin)
        problems = generate_problems([setting], key=problem_key)
        test_keys = problem_keys([setting], key=test_key)
        own_keys = problem_keys([setting], key=agent_key)
        xs = jr.normal(problem_keys([setting], key=input_key)[0], (_NUM_INPUTS, setting.input_dim))
        start = time.perf_counter()
        runs = [
            jax.block_until_ready(agent.sample(problems, keys=jax.vmap(lambda own, n=n: jr.fold_in(own, n))(own_keys)))
            for n in range(_NUM_RUNS)
        ]
        seconds = time.perf_counter() - start
        each = [_divergences(enn, problems, config, test_keys) for enn, _ in runs]
        particles = jax.tree.map(
            lambda *leaves: jnp.concatenate(leaves, axis=1),
            *(eqx.filter(enn.particles, eqx.is_array) for enn, _ in runs),
        )
        both = eqx.filter_vmap(Ensemble)(eqx.combine(particles, runs[0][0].particles))
        together = _divergences(both, problems, config, test_keys)
        logits = _predicted(take_member(both, 0), xs)
        by_chain = logits.reshape(_NUM_RUNS * config.num_chains, config.num_samples, -1)
        r_hats = jax.device_get(split_r_hat(jax.nn.sigmoid(by_chain)))
        model = take_member(problems, 0).model
        assert model is not None
        true = jnp.diff(model(xs[0]))[0]
        yield [
            {
                "agent": "bayes",
                "label": "bayes",
                "problem": setting.number,
                "input_dim": setting.input_dim,
                "data_ratio": setting.data_ratio,
                "temperature": setting.temperature,
                "seed": setting.seed,
                "marginal": together[1][0],
                "marginal_error": together[1][1],
                "joint": together[10][0],
                "joint_error": together[10][1],
                "first_joint": each[0][10][0],
                "second_joint": each[1][10][0],
                "median_r_hat": float(np.median(r_hats)),
                "largest_r_hat": float(np.max(r_hats)),
                "rank": float(jnp.mean(logits[:, 0] < true)),
                "acceptance": float(np.mean([float(found.acceptance[0]) for _, found in runs])),
                "log_evidence": float(np.mean([float(found.log_evidence[0]) for _, found in runs])),
                "gradients": sum(int(found.num_gradients[0]) * config.num_chains for _, found in runs),
                "num_samples": _NUM_RUNS * config.num_chains * config.num_samples,
                "seconds": round(seconds, 3),
            }
        ]
