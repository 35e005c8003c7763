"""The agent `sgmcmc`: stochastic-gradient MCMC (Table 1)."""

import dataclasses
from collections.abc import Hashable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..._enn import AbstractENN
from ..._keys import named_keys
from ..._xla import jit_unoptimized
from ...bayes import Deterministic, Ensemble, Langevin, run_chain, sghmc
from ...losses import Batch, CrossEntropy, mean_loss
from ...networks import MLP
from .._problem import PriorKnowledge, Problem
from ._agent import AbstractAgent
from ._baselines import adaptive_decay

# The input dimension from which the authors' sweep doubles the prior variance.
_MANY_INPUTS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class SGMCMCAgent(AbstractAgent):
    r"""Stochastic-gradient HMC over the weights of an MLP, at the temperature $1 / T$ of the posterior.

    Attributes:
        hidden: sizes of the hidden layers.
        prior_variance: $v$ of the decay $\sqrt\rho D / (v T)$.
        adaptive_prior_variance: whether $v$ is doubled for input dimensions of at least 100, as in the authors' sweep.
        learning_rate: the step size.
        momentum_decay: share of the momentum that a step keeps.
        num_steps: number of steps.
        burn_in: the step after which the first sample is kept.
        thin: number of steps between samples.
        batch_size: examples per step, drawn with replacement; all of them if there are fewer.
    """

    description: ClassVar[str] = "stochastic gradient MCMC"
    hyperparameters: ClassVar[str] = "learning rate, prior, momentum"

    hidden: tuple[int, ...] = (50, 50)
    prior_variance: float = 0.1
    adaptive_prior_variance: bool = False
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
        is_doubled = self.adaptive_prior_variance and knowledge.input_dim >= _MANY_INPUTS
        return CrossEntropy(l2=adaptive_decay(1 / (self.prior_variance * (2 if is_doubled else 1)), knowledge))

    def dynamics(self, knowledge: PriorKnowledge) -> Langevin:
        """Return the dynamics of the chain."""
        temperature = 1 / knowledge.num_train.astype(float)
        return sghmc(self.learning_rate, temperature, momentum_decay=self.momentum_decay)

    def group(self, input_dim: int, num_train: int) -> Hashable:
        """Return the sizes: batches are drawn from data without padding."""
        return input_dim, num_train

    def train(self, problems: Problem, *, keys: Key[Array, " problems"]) -> AbstractENN:
        """Return the samples of one chain per problem, as stacked ensembles."""
        size = int(problems.knowledge.num_train[0])
        data = jax.tree.map(lambda leaf: leaf[:, :size], problems.data)
        networks, losses, dynamics, chain_keys = _prepare(self, problems.knowledge, keys)
        lengths = _Lengths(self.num_steps, self.burn_in, self.thin, self.batch_size)
        return _run_chains(lengths, networks, losses, dynamics, data, chain_keys)


class _Lengths(NamedTuple):
    """The numbers that a compiled program depends on."""

    num_steps: int
    burn_in: int
    thin: int
    batch_size: int


@jit_unoptimized
def _prepare(
    agent: SGMCMCAgent, knowledge: PriorKnowledge, keys: Key[Array, " problems"]
) -> tuple[MLP, CrossEntropy, Langevin, Key[Array, " problems"]]:
    """Return the initial networks, losses, dynamics and keys of the chains."""

    def one(knowledge: PriorKnowledge, key: PRNGKeyArray) -> tuple[MLP, CrossEntropy, Langevin, PRNGKeyArray]:
        init_key, chain_key = named_keys(key, "init", "chain")
        return agent.init(knowledge, key=init_key), agent.loss(knowledge), agent.dynamics(knowledge), chain_key

    return eqx.filter_vmap(one)(knowledge, keys)


@eqx.filter_jit
def _run_chains(
    lengths: _Lengths,
    networks: MLP,
    losses: CrossEntropy,
    dynamics: Langevin,
    data: Batch,
    keys: Key[Array, " problems"],
) -> Ensemble:
    """Run one chain per problem; learning rates and priors are arrays, so a sweep over them compiles once."""

    def chain(network: MLP, loss: CrossEntropy, dynamics: Langevin, data: Batch, chain_key: PRNGKeyArray) -> Ensemble:
        def batch_loss(network: MLP, batch: Batch) -> Float[Array, ""]:
            return mean_loss(loss, Deterministic(network), jnp.zeros(1, dtype=int), batch)

        samples = run_chain(network, data, batch_loss, dynamics, key=chain_key, **lengths._asdict())
        # Not `from_samples`, which raises if a chain has diverged: one of many must not stop the others.
        return Ensemble(eqx.combine(samples, network))

    return eqx.filter_vmap(chain)(networks, losses, dynamics, data, keys)
