"""The testbed's agents as agents of bandits: tuned hyperparameters, and batches of equal or of matched compute."""

import dataclasses
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
from epinet_eqx.losses import AbstractLoss, CrossEntropy, GaussianKL, SquaredLoss
from epinet_eqx.testbed import (
    AbstractSGDAgent,
    BBBAgent,
    EnsembleAgent,
    EnsemblePlusAgent,
    EpinetAgent,
    PriorKnowledge,
    find_agent,
)

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
    """Return the power of the number of labels that an agent's decay, tuned on given data, falls with."""
    return agent.decay_power if isinstance(agent, EpinetAgent) else 1.0


def bandit_loss(agent: AbstractSGDAgent, knowledge: PriorKnowledge, noise_scale: float | None) -> AbstractLoss:
    r"""Return the loss of an agent of a bandit, whose penalty is divided by the number of observations.

    The authors' bandit replaces the tuned decay by $2 \rho s / n$, with $s$ the factor of the agent's own decay; the
    divergence of Bayes by backprop counts $2 \sqrt\rho / n$. A regression has its log-likelihood up to a factor.
    """
    if isinstance(agent, BBBAgent):
        scale = 2 * agent.scale * jnp.sqrt(knowledge.temperature)
        return CrossEntropy(penalty=GaussianKL(1, agent.prior_std, scale=scale))
    l2 = 2 * knowledge.temperature * decay_of(agent)
    if noise_scale is None:
        return CrossEntropy(l2=l2)
    # The log-likelihood is the squared error over twice the variance: here the penalty is multiplied instead.
    return SquaredLoss(l2=2 * noise_scale**2 * l2)


def decay_of(agent: AbstractSGDAgent) -> float:
    """Return the factor of an agent's decay, per particle where the loss is a mean over particles."""
    decay: float = agent.decay  # pyright: ignore[reportAttributeAccessIssue]
    return decay / agent.num_particles if isinstance(agent, EnsembleAgent | EnsemblePlusAgent) else decay


_REPLAY = 10_000
# One object: a compiled loop is found again by its identity.
_ADAM = optax.adam(1e-3)


def bandit_agent(
    variant: Variant,
    knowledge: PriorKnowledge,
    rule: str,
    *,
    batch_size: int,
    noise_scale: float | None = None,
    view: Callable[[AbstractENN], AbstractENN] | None = None,
) -> ENNAgent:
    """Return an agent of the testbed as one that acts and learns, by the protocol of the authors' bandit.

    One step of Adam after each observation, at a learning rate of 1e-3, on a batch from a replay of 10,000.

    Args:
        variant: the agent.
        knowledge: what it knows, by `knowledge_of`.
        rule: name of its rule.
        batch_size: number of examples of an update.
        noise_scale: standard deviation of rewards on the line; None for rewards of 0 and 1.
        view: makes the ENN that it acts by of the one that it learns; by default they are the same.
    """
    agent = sgd_agent(variant)
    plan = agent.plan(knowledge.input_dim, 1)
    # Agents with particles train all of them in each step.
    finite = variant.agent in ("mlp", "ensemble", "ensemble+")
    return ENNAgent(
        InitialENN(agent, knowledge),
        bandit_loss(agent, knowledge, noise_scale),
        BernoulliReward() if noise_scale is None else GaussianReward(),
        RULES[rule],
        optimizer=_ADAM,
        batch_size=batch_size,
        num_index_samples=None if finite else plan.num_index_samples,
        buffer_size=_REPLAY,
        view=view,
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
