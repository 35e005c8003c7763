"""Thompson sampling and the greedy rule with the same epinet, over horizons, numbers of actions and temperatures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.bandits import run_bandits

from ..artifacts.dec_horizon import HorizonOf
from ..configs.testbed import variant_of
from ..record import Row
from .decision_agents import bandit_agent, knowledge_of
from .thesis import TestbedEnvironment


def groups(configs: Mapping[str, HorizonOf]) -> list[list[str]]:
    """Return the temperatures of one rule and one number of actions together: they share their programs."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        found.setdefault(replace(config, temperature=0.0), []).append(name)
    return list(found.values())


def run(configs: Sequence[HorizonOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return what each run has lost per step at each horizon; runs of one seed have the same true network."""
    (own_key,) = named_keys(key, "runs")
    found = []
    for config in configs:
        runs = run_bandits(
            bandit_agent(
                variant_of("epinet"),
                knowledge_of(config.input_dim, 2, config.temperature),
                config.rule,
                batch_size=config.batch_size,
            ),
            TestbedEnvironment(jnp.asarray(config.temperature, dtype=float), config.input_dim, config.num_actions),
            num_steps=max(config.horizons),
            keys=jr.split(jr.clone(own_key), config.num_runs),
        )
        regret = np.asarray(runs.regret, dtype=float)
        found.append(
            [
                {
                    "rule": config.rule,
                    "num_actions": config.num_actions,
                    "temperature": config.temperature,
                    "seed": seed,
                    "horizon": horizon,
                    "lost": regret[seed, horizon - 1] / horizon,
                }
                for seed in range(config.num_runs)
                for horizon in config.horizons
            ]
        )
    return found
