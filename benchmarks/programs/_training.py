"""Steps of Algorithm 1: of each agent, of a compiled loop, of a stack of networks; and a whole `fit`."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from epinet_eqx import fit
from epinet_eqx.bayes import Deterministic, run_chain, sghmc
from epinet_eqx.losses import AbstractLoss, Batch, CrossEntropy, mean_loss
from epinet_eqx.networks import MLP
from epinet_eqx.testbed import (
    AbstractSGDAgent,
    EnsembleAgent,
    EnsemblePlusAgent,
    PriorKnowledge,
    SGMCMCAgent,
    find_agent,
)
from epinet_eqx.training import EpistemicObjective, TrainState, UniformBatches, init_state, train_step, train_steps

from ._program import Program

INPUTS, CLASSES, EXAMPLES, BATCH, PARTICLES, STEPS = 10, 2, 200, 100, 10, 20
OPTIMIZER = optax.adam(1e-3)


def knowledge_at(value: float) -> PriorKnowledge:
    """Return an agent's knowledge, with this temperature."""
    return PriorKnowledge(INPUTS, CLASSES, jnp.asarray(EXAMPLES, dtype=jnp.int32), jnp.asarray(value, dtype=float))


def make_data(num_examples: int) -> Batch:
    """Return examples of two classes."""
    x = jr.normal(jr.key(0), (num_examples, INPUTS))
    return Batch.of(x, (x[:, 0] > 0).astype(jnp.int32))


def make_agent(name: str) -> AbstractSGDAgent:
    """Return an agent of the testbed, an ensemble with few particles."""
    agent = find_agent(name)
    if isinstance(agent, EnsembleAgent | EnsemblePlusAgent):
        return dataclasses.replace(agent, num_particles=PARTICLES)
    assert isinstance(agent, AbstractSGDAgent)
    return agent


def agent_step(name: str, value: float) -> Program:
    """One step of an agent of the testbed."""
    agent, knowledge = make_agent(name), knowledge_at(value)
    state = init_state(agent.init(knowledge, key=jr.key(1)), OPTIMIZER, key=jr.key(2))
    samples = agent.plan(INPUTS, EXAMPLES).num_index_samples

    def step(state: TrainState, batch: Batch, loss: AbstractLoss) -> Any:
        new, metrics = train_step(state, batch, EpistemicObjective(loss, num_index_samples=samples), OPTIMIZER)
        return new, metrics["loss"]

    return Program(step, (state, make_data(BATCH), agent.loss(knowledge)), state.model)


def _chain(network: MLP, data: Batch, loss: AbstractLoss, temperature: jax.Array, key: jax.Array) -> Any:
    def batch_loss(network: MLP, batch: Batch) -> jax.Array:
        return mean_loss(loss, Deterministic(network), jnp.zeros(1, dtype=jnp.int32), batch)

    dynamics = sghmc(1e-4, temperature)
    options = {"num_steps": STEPS, "burn_in": STEPS // 2, "thin": STEPS // 2, "batch_size": BATCH}
    return run_chain(network, data, batch_loss, dynamics, **options, key=key)


def chain(value: float) -> Program:
    """Steps of the agent `sgmcmc`."""
    agent, knowledge = SGMCMCAgent(), knowledge_at(value)
    network, temperature = agent.init(knowledge, key=jr.key(1)), jnp.asarray(value / EXAMPLES, dtype=float)
    args = (network, make_data(EXAMPLES), agent.loss(knowledge), temperature, jr.key(2))
    return Program(_chain, args, network, STEPS)


def loop(value: float) -> Program:
    """Steps of a network in one compiled loop."""
    agent, knowledge = make_agent("mlp"), knowledge_at(value)
    state = init_state(agent.init(knowledge, key=jr.key(1)), OPTIMIZER, key=jr.key(2))

    def run(state: TrainState, data: Batch, loss: AbstractLoss) -> Any:
        objective = EpistemicObjective(loss, num_index_samples=1)
        return train_steps(state, data, objective, OPTIMIZER, batches=UniformBatches(BATCH), num_steps=STEPS)

    return Program(run, (state, make_data(EXAMPLES), agent.loss(knowledge)), state.model, STEPS)


def _particle(key: jax.Array) -> TrainState:
    return init_state(Deterministic(MLP(INPUTS, CLASSES, (50, 50), key=key)), OPTIMIZER, key=key)


def stacked_step_of(particles: int, loss: AbstractLoss) -> Program:
    """One step of a stack of networks, as in training an ensemble."""
    states = eqx.filter_vmap(_particle)(jr.split(jr.key(1), particles))

    def step(states: TrainState, batch: Batch, loss: AbstractLoss) -> Any:
        def one(state: TrainState) -> Any:
            new, metrics = train_step(state, batch, EpistemicObjective(loss, num_index_samples=1), OPTIMIZER)
            return new, metrics["loss"]

        return eqx.filter_vmap(one)(states)

    return Program(step, (states, make_data(BATCH), loss), states.model)


def stacked_step(value: float) -> Program:
    """One step of ten networks at once."""
    return stacked_step_of(PARTICLES, CrossEntropy(l2=1e-3 * value))


def fit_as_called(value: float) -> Program:
    """A whole `fit`, called again with other values."""
    agent, knowledge = make_agent("mlp"), knowledge_at(value)
    enn = agent.init(knowledge, key=jr.key(1))

    def call(enn: Any, data: Batch, loss: AbstractLoss) -> Any:
        found = fit(enn, data, loss, num_steps=5, optimizer=OPTIMIZER, block_size=5, progress=False, key=jr.key(2))
        return found.enn

    return Program(call, (enn, make_data(EXAMPLES), agent.loss(knowledge)), enn)
