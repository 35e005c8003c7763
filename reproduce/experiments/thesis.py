"""Predictions and decisions of the same agents on the same problems of the Neural Testbed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx._xla import jit_unoptimized
from epinet_eqx.bandits import NeuralBandit, run_bandits
from epinet_eqx.testbed import Problem, Setting, evaluate, stack_problems

from ..configs.decisions import ThesisOf
from ..record import Row
from .decision_agents import bandit_agent, knowledge_of, sgd_agent


class TestbedEnvironment(eqx.Module):
    """Draws the bandit whose true model is that of the problem with the same key."""

    temperature: Float[Array, ""]
    input_dim: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __call__(self, key: PRNGKeyArray) -> NeuralBandit:
        """Return the bandit."""
        return NeuralBandit.generate(self.input_dim, self.num_actions, self.temperature, key=key)


def run_keys(config: ThesisOf, *, key: PRNGKeyArray) -> Array:
    """Return the key of each run in the bandits of a setting."""
    (own_key,) = named_keys(key, f"d{config.input_dim}-rho{config.temperature:g}")
    return jr.split(own_key, config.num_problems)


def make_problems(config: ThesisOf, *, key: PRNGKeyArray) -> list[Problem]:
    """Return the problems of a setting; each has the true model of the bandit of its run."""
    setting = Setting(
        input_dim=config.input_dim,
        data_ratio=config.data_ratio,
        temperature=config.temperature,
        seed=0,
        number=1,
    )
    # What `run_bandits` draws the environment of a run from.
    return [
        Problem.generate(setting, key=named_keys(own_key, "environment")[0]) for own_key in run_keys(config, key=key)
    ]


def groups(configs: Mapping[str, ThesisOf]) -> list[list[str]]:
    """Return the temperatures of one agent and one dimension together: they share their programs."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        found.setdefault(replace(config, temperature=0.0), []).append(name)
    return list(found.values())


def _divergences(configs: Sequence[ThesisOf], *, key: PRNGKeyArray) -> dict[int, np.ndarray]:
    """Return the divergence at one and at ten labels of each problem of each setting."""
    config = configs[0]
    problems = stack_problems([problem for own in configs for problem in make_problems(own, key=key)])
    agent_key, test_key = named_keys(key, "agents", "tests")
    count = len(configs) * config.num_problems
    enns = sgd_agent(config.variant).train(problems, keys=jr.split(agent_key, count))
    estimates = evaluate(enns, problems, num_batches=config.num_batches, keys=jr.split(test_key, count))
    return {
        tau: np.asarray(estimate.mean, dtype=float).reshape(len(configs), -1) for tau, estimate in estimates.items()
    }


@jit_unoptimized
def _uniform_regrets(environment: TestbedEnvironment, keys: Array) -> Float[Array, " runs"]:
    """Return the expected regret of one step by uniform choice, of each run."""

    def one(key: PRNGKeyArray) -> Float[Array, ""]:
        expected = environment(named_keys(key, "environment")[0]).round(key=key).expected
        return jnp.max(expected) - jnp.mean(expected)

    return jax.vmap(one)(keys)


def _regrets(config: ThesisOf, *, key: PRNGKeyArray) -> np.ndarray:
    """Return the regret of each run over that of uniform choice."""
    num_actions = config.actions_per_dim * config.input_dim
    environment = TestbedEnvironment(jnp.asarray(config.temperature, dtype=float), config.input_dim, num_actions)
    keys = run_keys(config, key=key)
    agent = bandit_agent(
        config.variant,
        knowledge_of(config.input_dim, 2, config.temperature),
        "thompson",
        batch_size=config.batch_size,
    )
    runs = run_bandits(agent, environment, num_steps=config.num_steps, keys=keys)
    uniform = config.num_steps * _uniform_regrets(environment, jr.clone(keys))
    return np.asarray(runs.regret[:, -1] / uniform, dtype=float)


def run(configs: Sequence[ThesisOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return divergences and regret of one agent: one row for each problem."""
    kl = _divergences(configs, key=key)
    found = []
    for number, config in enumerate(configs):
        regret = _regrets(config, key=key)
        found.append(
            [
                {
                    "agent": config.variant.agent,
                    "label": config.variant.label,
                    "input_dim": config.input_dim,
                    "temperature": config.temperature,
                    "seed": seed,
                    "marginal": kl[1][number, seed],
                    "joint": kl[10][number, seed],
                    "regret": regret[seed],
                }
                for seed in range(config.num_problems)
            ]
        )
    return found
