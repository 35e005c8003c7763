"""What an agent of the testbed costs: parameters, and counted operations of its training."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from epinet_eqx import AbstractENN, count_parameters, trainable_mask
from epinet_eqx.losses import Batch
from epinet_eqx.testbed import (
    AbstractAgent,
    AbstractSGDAgent,
    MLPAgent,
    PriorKnowledge,
    Setting,
    SGMCMCAgent,
    take_member,
)
from epinet_eqx.training import EpistemicObjective, init_state, train_step


def parameter_counts(enns: AbstractENN) -> tuple[int, int]:
    """Return the number of parameters of one of stacked ENNs, and of those that are trained."""
    enn = take_member(enns, 0)
    trained = eqx.filter(enn, trainable_mask(enn))
    return count_parameters(eqx.filter(enn, eqx.is_inexact_array)), count_parameters(trained)


def knowledge_of(input_dim: int, num_train: int) -> PriorKnowledge:
    """Return what an agent may know of a problem of this size; counts do not depend on the temperature."""
    return PriorKnowledge(input_dim, 2, jnp.asarray(num_train, dtype=jnp.int32), jnp.asarray(1.0))


@ft.cache
def _step_flops(agent: AbstractSGDAgent, input_dim: int, num_train: int) -> float:
    """Return the operations of one step of training, counted by XLA before it optimizes."""
    plan = agent.plan(input_dim, num_train)
    knowledge = knowledge_of(input_dim, num_train)
    optimizer = optax.adam(plan.learning_rate)

    def step(key: Any, batch: Batch) -> Any:
        init_key, train_key = jr.split(key)
        state = init_state(agent.init(knowledge, key=init_key), optimizer, key=train_key)
        objective = EpistemicObjective(agent.loss(knowledge), num_index_samples=plan.num_index_samples)
        new, metrics = train_step(state, batch, objective, optimizer)
        return eqx.filter((new, metrics["loss"]), eqx.is_inexact_array)

    def init_only(key: Any) -> Any:
        init_key, _ = jr.split(key)
        return eqx.filter(agent.init(knowledge, key=init_key), eqx.is_inexact_array)

    size = plan.batch_size
    batch = Batch(jnp.zeros((size, input_dim)), jnp.zeros(size, dtype=jnp.int32), jnp.arange(size, dtype=jnp.int32))
    return _count(step, jr.key(0), batch) - _count(init_only, jr.key(0))


def _count(function: Any, *args: Any) -> float:
    """Return the operations of a program that is traced, not compiled."""
    analysis = jax.jit(function).lower(*args).cost_analysis()
    return float((analysis or {}).get("flops", 0.0))


def training_flops(agent: AbstractAgent, setting: Setting) -> float:
    """Return the operations of a whole training; a step of `sgmcmc` is counted as one of the `mlp` agent."""
    input_dim, num_train = setting.input_dim, setting.num_train
    if isinstance(agent, SGMCMCAgent):
        return agent.num_steps * _step_flops(MLPAgent(hidden=agent.hidden), input_dim, num_train)
    assert isinstance(agent, AbstractSGDAgent)
    return agent.plan(input_dim, num_train).num_steps * _step_flops(agent, input_dim, num_train)
