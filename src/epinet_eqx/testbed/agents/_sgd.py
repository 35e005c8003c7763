"""Agents that are trained by Algorithm 1."""

import abc
import math
from collections.abc import Hashable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Key, PRNGKeyArray

from ..._enn import AbstractENN
from ..._keys import named_keys
from ..._xla import jit_unoptimized
from ...losses import AbstractLoss
from ...training import NonFiniteLossError, ShuffledBatches, TrainState, fit_many, init_state
from .._problem import PriorKnowledge, Problem
from .._stacks import padded_size
from ._agent import AbstractAgent

# The random indices of a block of steps are held in memory: bounds on their size and on the steps of a block.
_BLOCK_NUMBERS = 2**22
_MAX_BLOCK = 200


class TrainingPlan(NamedTuple):
    """Static numbers of a training: changing one recompiles."""

    num_steps: int
    num_index_samples: int
    learning_rate: float
    batch_size: int = 100


def poisoned(enns: AbstractENN, failed: Bool[Array, " problems"]) -> AbstractENN:
    """Return stacked ENNs; parameters of those that failed are NaN, so that they cannot pass for results."""

    def poison(leaf: Array) -> Array:
        return jnp.where(failed.reshape(-1, *(1 for _ in leaf.shape[1:])), jnp.nan, leaf)

    return jax.tree.map(lambda leaf: poison(leaf) if eqx.is_inexact_array(leaf) else leaf, enns)


class AbstractSGDAgent(AbstractAgent):
    """An agent that trains an ENN with Adam: it defines the ENN, the loss and the length of training."""

    @abc.abstractmethod
    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> AbstractENN:
        """Return the initial ENN; pure, and everything that depends on the problem is an array."""

    @abc.abstractmethod
    def loss(self, knowledge: PriorKnowledge) -> AbstractLoss:
        """Return the loss; pure, its scalars are arrays."""

    @abc.abstractmethod
    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the number of steps and index samples, and the learning rate."""

    def group(self, input_dim: int, num_train: int) -> Hashable:
        """Return the input dimension, the length of the padded data and the plan."""
        return input_dim, padded_size(input_dim, num_train), self.plan(input_dim, num_train)

    def train(self, problems: Problem, *, keys: Key[Array, " problems"]) -> AbstractENN:
        """Return the trained ENNs of a stack of problems."""
        size = int(np.max(np.asarray(problems.knowledge.num_train)))
        plan = self.plan(problems.knowledge.input_dim, size)
        states, losses = _prepare(self, problems.knowledge, plan.learning_rate, keys)
        numbers = keys.shape[0] * plan.num_index_samples * math.prod(states.model.index.shape)
        try:
            result = fit_many(
                states,
                problems.data,
                losses,
                num_steps=plan.num_steps,
                batch_size=plan.batch_size,
                sampling=ShuffledBatches,
                optimizer=optax.adam(plan.learning_rate),
                num_index_samples=plan.num_index_samples,
                progress=False,
                block_size=max(1, min(_MAX_BLOCK, plan.num_steps, _BLOCK_NUMBERS // numbers)),
                data_axis=0,
                loss_axis=0,
                data_sizes=problems.knowledge.num_train,
                key=jr.clone(keys)[0],  # Not used: the states have their own keys.
            )
        except NonFiniteLossError as error:
            return poisoned(error.state.model, error.state.step < plan.num_steps)
        return result.model


@jit_unoptimized
def _prepare(
    agent: AbstractSGDAgent, knowledge: PriorKnowledge, learning_rate: float, keys: Key[Array, " problems"]
) -> tuple[TrainState, AbstractLoss]:
    """Return the states before training and the losses of a stack of problems."""

    def one(knowledge: PriorKnowledge, key: PRNGKeyArray) -> tuple[TrainState, AbstractLoss]:
        init_key, train_key = named_keys(key, "init", "train")
        state = init_state(agent.init(knowledge, key=init_key), optax.adam(learning_rate), key=train_key)
        return state, agent.loss(knowledge)

    return eqx.filter_vmap(one)(knowledge, keys)
