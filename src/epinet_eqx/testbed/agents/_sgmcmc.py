"""The agent `sgmcmc`: stochastic-gradient MCMC (Table 1)."""

import dataclasses
from collections.abc import Hashable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..._enn import AbstractENN
from ..._keys import named_keys
from ..._xla import jit_unoptimized
from ...bayes import Deterministic, Ensemble, run_chain, sghmc
from ...losses import Batch, CrossEntropy, mean_loss
from ...networks import MLP
from .._problem import PriorKnowledge, Problem
from ._agent import AbstractAgent
from ._rules import adaptive_decay


@dataclasses.dataclass(frozen=True, kw_only=True)
class SGMCMCAgent(AbstractAgent):
    r"""Stochastic-gradient HMC over the weights of an MLP, at the temperature $1 / T$ of the posterior.

    Attributes:
        hidden: sizes of the hidden layers.
        prior_variance: $v$ of the decay $\sqrt\rho D / (v T)$.
        learning_rate: the step size.
        momentum_decay: share of the momentum that a step keeps.
        num_steps: number of steps.
        burn_in: the step after which the first sample is kept.
        thin: number of steps between samples.
        batch_size: examples per step, drawn with replacement; all of them where there are no more.
    """

    description: ClassVar[str] = "stochastic gradient MCMC"
    hyperparameters: ClassVar[str] = "learning rate, prior, momentum"

    hidden: tuple[int, ...] = (50, 50)
    prior_variance: float = 0.1
    learning_rate: float = 1e-4
    momentum_decay: float = 0.9
    num_steps: int = 500_000
    burn_in: int = 100_000
    thin: int = 1000
    batch_size: int = 100

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> MLP:
        """Return the network where the chain begins."""
        return MLP(knowledge.input_dim, knowledge.num_classes, self.hidden, feature_layers=(), key=key)

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the mean loss whose exponential is sampled from."""
        return CrossEntropy(l2=adaptive_decay(1 / self.prior_variance, knowledge))

    def group(self, input_dim: int, num_train: int) -> Hashable:
        """Return the sizes: batches are drawn from data without padding."""
        return input_dim, num_train

    def train(self, problems: Problem, *, keys: Key[Array, " problems"]) -> AbstractENN:
        """Return the samples of one chain per problem, as stacked ensembles."""
        size = int(problems.knowledge.num_train[0])
        data = jax.tree.map(lambda leaf: leaf[:, :size], problems.data)
        networks, chain_keys = _prepare(self, problems.knowledge, keys)
        return _run_chains(self, networks, data, problems.knowledge, chain_keys)


@jit_unoptimized
def _prepare(
    agent: SGMCMCAgent, knowledge: PriorKnowledge, keys: Key[Array, " problems"]
) -> tuple[MLP, Key[Array, " problems"]]:
    """Return where the chains begin, and their keys."""

    def one(knowledge: PriorKnowledge, key: PRNGKeyArray) -> tuple[MLP, PRNGKeyArray]:
        init_key, chain_key = named_keys(key, "init", "chain")
        return agent.init(knowledge, key=init_key), chain_key

    return eqx.filter_vmap(one)(knowledge, keys)


@eqx.filter_jit
def _run_chains(
    agent: SGMCMCAgent, networks: MLP, data: Batch, knowledge: PriorKnowledge, keys: Key[Array, " problems"]
) -> Ensemble:
    """Run one chain per problem."""

    def chain(network: MLP, data: Batch, knowledge: PriorKnowledge, chain_key: PRNGKeyArray) -> Ensemble:
        loss = agent.loss(knowledge)

        def batch_loss(network: MLP, batch: Batch) -> Float[Array, ""]:
            return mean_loss(loss, Deterministic(network), jnp.zeros(1, dtype=int), batch)

        temperature = 1 / knowledge.num_train.astype(float)
        samples = run_chain(
            network,
            data,
            batch_loss,
            sghmc(agent.learning_rate, temperature, momentum_decay=agent.momentum_decay),
            num_steps=agent.num_steps,
            burn_in=agent.burn_in,
            thin=agent.thin,
            batch_size=agent.batch_size,
            key=chain_key,
        )
        # Not `from_samples`, which raises if a chain has diverged: one of many must not stop the others.
        return Ensemble(eqx.combine(samples, network))

    return eqx.filter_vmap(chain)(networks, data, knowledge, keys)
