"""Table 1 from the registry of agents, with what each costs on a problem of medium size."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from epinet_eqx.testbed import AGENTS, AbstractSGDAgent, MLPAgent, SGMCMCAgent, find_setting

from ..configs.testbed import AgentSummary
from ..record import Row
from .testbed_cost import knowledge_of, training_flops


def summarize(config: AgentSummary, *, key: Any) -> Sequence[Row]:
    """Return one row per agent of the registry."""
    setting = find_setting("d10_lambda10_rho0.1_seed0")
    knowledge = knowledge_of(setting.input_dim, setting.num_train)
    rows = []
    for name, agent in AGENTS.items():
        if isinstance(agent, SGMCMCAgent):
            network, steps = MLPAgent(hidden=agent.hidden), agent.num_steps
            copies = 1 + (agent.num_steps - agent.burn_in) // agent.thin
        else:
            assert isinstance(agent, AbstractSGDAgent)
            network, steps, copies = agent, agent.plan(setting.input_dim, setting.num_train).num_steps, 1
        shapes = eqx.filter_eval_shape(lambda key, network=network: network.init(knowledge, key=key), key)
        arrays = [leaf for leaf in jax.tree.leaves(shapes) if isinstance(leaf, jax.ShapeDtypeStruct)]
        rows.append(
            {
                "agent": name,
                "description": agent.description,
                "hyperparameters": agent.hyperparameters,
                "parameters": copies * sum(leaf.size for leaf in arrays if jnp.issubdtype(leaf.dtype, jnp.floating)),
                "steps": steps,
                "flops": training_flops(agent, setting),
            }
        )
    return rows
