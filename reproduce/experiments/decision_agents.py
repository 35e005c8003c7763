"""The testbed's agents as agents of bandits: tuned hyperparameters, and batches of equal or of matched compute."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from epinet_eqx import AbstractENN
from epinet_eqx.bandits import (
    AbstractRule,
    BernoulliReward,
    ENNAgent,
    EpsilonGreedy,
    GaussianReward,
    Greedy,
    InformationDirectedSampling,
    ThompsonSampling,
    UpperConfidenceBound,
)
from epinet_eqx.losses import L2, AbstractLoss, SquaredLoss
from epinet_eqx.testbed import AbstractSGDAgent, EpinetAgent, PriorKnowledge, find_agent

from ..configs.testbed import Variant

RULES: dict[str, AbstractRule] = {
    "thompson": ThompsonSampling(),
    "ucb": UpperConfidenceBound(),
    "ids": InformationDirectedSampling(),
    "greedy": Greedy(),
    "epsilon-greedy": EpsilonGreedy(),
}
"""The rules, as the library has them by default."""


class InitialENN(eqx.Module):
    """What makes the ENN of an agent before training: a module, so that another temperature compiles nothing."""

    agent: AbstractSGDAgent = eqx.field(static=True)
    knowledge: PriorKnowledge

    def __call__(self, key: PRNGKeyArray) -> AbstractENN:
        """Return the ENN."""
        return self.agent.init(self.knowledge, key=key)


def sgd_agent(variant: Variant) -> AbstractSGDAgent:
    """Return the agent of the registry with the changes of a variant."""
    agent = dataclasses.replace(find_agent(variant.agent), **dict(variant.changes))  # pyright: ignore[reportArgumentType]
    assert isinstance(agent, AbstractSGDAgent)
    return agent


def knowledge_of(input_dim: int, num_classes: int, temperature: float) -> PriorKnowledge:
    """Return what an agent may know with one example: its decay for more of them follows by `prior_power`."""
    one = jnp.asarray(1, dtype=jnp.int32)
    return PriorKnowledge(input_dim, num_classes, one, jnp.asarray(temperature, dtype=float))


def prior_power(agent: AbstractSGDAgent) -> float:
    """Return the power of the number of examples that an agent's tuned decay falls with."""
    return agent.decay_power if isinstance(agent, EpinetAgent) else 1.0


def _loss(agent: AbstractSGDAgent, knowledge: PriorKnowledge, noise_scale: float | None) -> AbstractLoss:
    """Return the loss of an agent, for one example; that of a regression is the log-likelihood up to a factor."""
    loss = agent.loss(knowledge)
    if noise_scale is None:
        return loss
    assert isinstance(loss.penalty, L2)
    # The log-likelihood is the squared error over twice the variance: here the penalty is multiplied instead.
    return SquaredLoss(l2=2 * noise_scale**2 * loss.penalty.scale)


@ft.cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    """Return the optimizer, one object per learning rate: a compiled loop is found again by its identity."""
    return optax.adam(learning_rate)


def bandit_agent(
    variant: Variant,
    knowledge: PriorKnowledge,
    rule: str,
    *,
    batch_size: int,
    num_steps: int,
    noise_scale: float | None = None,
) -> ENNAgent:
    """Return an agent of the testbed as one that acts and learns.

    Args:
        variant: the agent.
        knowledge: what it knows, by `knowledge_of`.
        rule: name of its rule.
        batch_size: number of examples of an update.
        num_steps: the number of steps to come.
        noise_scale: standard deviation of rewards on the line; None for rewards of 0 and 1.
    """
    agent = sgd_agent(variant)
    plan = agent.plan(knowledge.input_dim, num_steps)
    # Agents with particles train all of them in each step.
    finite = variant.agent in ("mlp", "ensemble", "ensemble+")
    return ENNAgent(
        InitialENN(agent, knowledge),
        _loss(agent, knowledge, noise_scale),
        BernoulliReward() if noise_scale is None else GaussianReward(),
        RULES[rule],
        optimizer=_adam(plan.learning_rate),
        batch_size=batch_size,
        num_index_samples=None if finite else plan.num_index_samples,
        prior_power=prior_power(agent),
    )


def _update_flops(agent: ENNAgent, input_dim: int) -> float:
    """Return the operations of an update, counted by XLA before it optimizes."""
    inputs = jax.ShapeDtypeStruct((1, input_dim), jnp.zeros(()).dtype)
    state = eqx.filter_eval_shape(lambda: agent.init(inputs, 2, key=jr.key(0)))
    arrays, static = eqx.partition(state, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def update(arrays: Any, x: Any, reward: Any) -> Any:
        known = eqx.combine(arrays, static)
        return eqx.filter(agent.observe(known, jnp.asarray(1), x, reward, key=jr.key(0)), eqx.is_array)

    scalar = jax.ShapeDtypeStruct((), jnp.zeros(()).dtype)
    x = jax.ShapeDtypeStruct((input_dim,), scalar.dtype)
    analysis = jax.jit(update).lower(arrays, x, scalar).cost_analysis()
    return float((analysis or {}).get("flops", 0.0))


def example_flops(make: Callable[[int], ENNAgent], input_dim: int) -> float:
    """Return the operations that one more example in the batch of an update takes.

    Args:
        make: makes the agent with a size of the batch.
        input_dim: size of the input of an action.
    """
    small, large = 64, 128
    return (_update_flops(make(large), input_dim) - _update_flops(make(small), input_dim)) / (large - small)
