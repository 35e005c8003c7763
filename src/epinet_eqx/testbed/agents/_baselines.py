"""The agents of Table 1 that Adam trains, except the epinet, and the rules that they share (Appendix F)."""

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._keys import named_keys
from ...bayes import BayesByBackprop, Deterministic, Ensemble, IndexedMLP, LinearHypermodel, MCDropout, dropout_mlp
from ...combinators import Prior, WithPrior
from ...indices import ScaledGaussianIndex
from ...losses import CrossEntropy, GaussianKL
from ...networks import MLP, truncated_normal_with_bias
from .._problem import PriorKnowledge
from ._sgd import AbstractSGDAgent, TrainingPlan


def over_data(knowledge: PriorKnowledge) -> Float[Array, ""]:
    r"""Return $D / T$, one over the data ratio."""
    return knowledge.input_dim / knowledge.num_train.astype(float)


def adaptive_decay(scale: float, knowledge: PriorKnowledge) -> Float[Array, ""]:
    r"""Return $s \sqrt\rho \, D / T$: the $L_2$ decay of most agents, for a mean loss over examples."""
    return scale * jnp.sqrt(knowledge.temperature) * over_data(knowledge)


def mlp_with_bias(in_dim: int, out_dim: int, hidden: tuple[int, ...], *, key: PRNGKeyArray) -> MLP:
    """Return an MLP whose first layer has a bias of the distribution of its weights; the other biases are zero."""
    network_key, bias_key = named_keys(key, "network", "bias")
    network = MLP(in_dim, out_dim, hidden, feature_layers=(), key=network_key)
    first = network.layers[0].bias
    bias = jr.truncated_normal(bias_key, -2.0, 2.0, first.shape) / math.sqrt(in_dim)
    return eqx.tree_at(lambda mlp: mlp.layers[0].bias, network, bias)


def scaled_steps(num_steps: int, input_dim: int, num_train: int) -> int:
    """Return five times the steps for much data (a ratio above 500), a fifth for little (below 5)."""
    ratio = num_train / input_dim
    if ratio > 500:
        return 5 * num_steps
    return max(1, num_steps // 5) if ratio < 5 else num_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLPAgent(AbstractSGDAgent):
    r"""A vanilla MLP with $L_2$ decay $s \sqrt\rho D / T$."""

    description: ClassVar[str] = "vanilla MLP"
    hyperparameters: ClassVar[str] = "L2 decay"

    hidden: tuple[int, ...] = (50, 50)
    decay: float = 1.0
    learning_rate: float = 1e-3
    num_steps: int = 1000

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> Deterministic:
        """Return the network before training."""
        return Deterministic(MLP(knowledge.input_dim, knowledge.num_classes, self.hidden, feature_layers=(), key=key))

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=adaptive_decay(self.decay, knowledge))

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan: one index, the only one."""
        return TrainingPlan(self.num_steps, 1, self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractEnsembleAgent(AbstractSGDAgent):
    r"""An ensemble whose particles differ in their initialization and see the same batches.

    Each step draws as many indices as there are particles, with replacement. The decay of all particles together is
    $s \sqrt\rho D / (T K)$: relative to its share of the loss, a particle has that of `mlp`.

    Attributes:
        num_particles: the number of particles $K$.
        hidden: sizes of the hidden layers of a particle, and of its prior function if it has one.
        decay: the factor $s$ of the decay.
        learning_rate: learning rate of Adam.
        num_steps: number of steps.
        batch_strategy: whether the number of steps grows with the data ratio.
    """

    num_particles: int = 100
    hidden: tuple[int, ...] = (50, 50)
    decay: float = 1.0
    learning_rate: float = 1e-3
    num_steps: int = 1000
    batch_strategy: bool = False

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=adaptive_decay(self.decay / self.num_particles, knowledge))

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan."""
        steps = scaled_steps(self.num_steps, input_dim, num_train) if self.batch_strategy else self.num_steps
        return TrainingPlan(steps, self.num_particles, self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleAgent(AbstractEnsembleAgent):
    """A deep ensemble."""

    description: ClassVar[str] = "deep ensembles"
    hyperparameters: ClassVar[str] = "L2 decay, ensemble size"

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> Ensemble:
        """Return the particles before training; a larger ensemble begins with the smaller."""

        def particle(number: Int[Array, ""]) -> MLP:
            own_key = jr.fold_in(key, number)
            return MLP(knowledge.input_dim, knowledge.num_classes, self.hidden, feature_layers=(), key=own_key)

        return Ensemble(eqx.filter_vmap(particle)(jnp.arange(self.num_particles)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsemblePlusAgent(AbstractEnsembleAgent):
    r"""An ensemble whose particles have fixed random prior functions, of scale $s_p / \sqrt\rho$.

    Attributes:
        prior_scale: the factor $s_p$ of the prior scale.
    """

    description: ClassVar[str] = "ensemble + prior functions"
    hyperparameters: ClassVar[str] = "L2 decay, ensemble size, prior scale, bootstrap"

    prior_scale: float = 3.0

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> Ensemble:
        """Return the particles before training, with their prior functions."""
        particle_key, prior_key = named_keys(key, "particles", "priors")
        sizes = (knowledge.input_dim, knowledge.num_classes, self.hidden)
        scale = self.prior_scale / jnp.sqrt(knowledge.temperature)

        def particle(number: Int[Array, ""]) -> WithPrior:
            network = Deterministic(mlp_with_bias(*sizes, key=jr.fold_in(particle_key, number)))
            prior = Deterministic(mlp_with_bias(*sizes, key=jr.fold_in(prior_key, number)))
            return WithPrior(network, Prior(prior, scale))

        return Ensemble(eqx.filter_vmap(particle)(jnp.arange(self.num_particles)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DropoutAgent(AbstractSGDAgent):
    r"""Monte Carlo dropout on the hidden units, one mask per step, with $L_2$ decay $s \sqrt\rho D / T$."""

    description: ClassVar[str] = "Dropout"
    hyperparameters: ClassVar[str] = "L2 decay, network, dropout rate"

    hidden: tuple[int, ...] = (100, 100)
    rate: float = 0.1
    dropout_input: bool = False
    decay: float = 1.0
    learning_rate: float = 1e-3
    num_steps: int = 1000

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> MCDropout:
        """Return the network before training."""
        return dropout_mlp(
            knowledge.input_dim,
            knowledge.num_classes,
            self.hidden,
            rate=self.rate,
            dropout_input=self.dropout_input,
            first_initializer=truncated_normal_with_bias,
            key=key,
        )

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=adaptive_decay(self.decay, knowledge))

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan."""
        return TrainingPlan(self.num_steps, 1, self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BBBAgent(AbstractSGDAgent):
    r"""A mean-field Gaussian over the weights; the divergence from the prior counts $\sqrt\rho D / T$.

    Attributes:
        hidden: sizes of the hidden layers.
        prior_std: standard deviation $\sigma_1$ of the prior.
        sigma_init: standard deviation of the weights before training.
        scale: a further factor of the divergence.
        learning_rate: learning rate of Adam.
        num_steps: number of steps.
        num_index_samples: index samples per step.
    """

    description: ClassVar[str] = "Bayes by backprop"
    hyperparameters: ClassVar[str] = "prior mixture, network, early stopping"

    hidden: tuple[int, ...] = (50, 50)
    prior_std: float = 1.0
    sigma_init: float = 0.01
    scale: float = 1.0
    learning_rate: float = 3e-3
    num_steps: int = 1000
    num_index_samples: int = 8

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> BayesByBackprop:
        """Return the distribution before training."""
        network = MLP(knowledge.input_dim, knowledge.num_classes, self.hidden, feature_layers=(), key=key)
        return BayesByBackprop(network, sigma_init=self.sigma_init)

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        scale = self.scale * jnp.sqrt(knowledge.temperature) * knowledge.input_dim
        penalty = GaussianKL(knowledge.num_train.astype(float), self.prior_std, scale=scale)
        return CrossEntropy(penalty=penalty)

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan."""
        return TrainingPlan(self.num_steps, self.num_index_samples, self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HypermodelAgent(AbstractSGDAgent):
    r"""An MLP whose weights are linear in the index, plus a fixed prior function of scale $s_p / \sqrt\rho$.

    Attributes:
        index_dim: dimension of the index.
        hidden: sizes of the hidden layers.
        prior_hidden: sizes of the hidden layers of the prior function.
        prior_scale: the factor $s_p$ of the prior scale.
        decay: the factor $s$ of the decay $s \sqrt\rho D / T$ of the hypermodel's parameters.
        learning_rate: learning rate of Adam.
        num_steps: number of steps.
        num_index_samples: index samples per step.
    """

    description: ClassVar[str] = "hypermodel"
    hyperparameters: ClassVar[str] = "L2 decay, prior, bootstrap, index dimension"

    index_dim: int = 6
    hidden: tuple[int, ...] = (50, 50)
    prior_hidden: tuple[int, ...] = (10,)
    prior_scale: float = 1.0
    decay: float = 1.0
    learning_rate: float = 1e-3
    num_steps: int = 2000
    num_index_samples: int = 16

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> WithPrior:
        """Return the hypermodel before training, with its prior function."""
        network_key, model_key, prior_key = named_keys(key, "network", "hypermodel", "prior")
        sizes = (knowledge.input_dim, knowledge.num_classes)
        index = ScaledGaussianIndex(self.index_dim)
        network = MLP(*sizes, self.hidden, feature_layers=(), key=network_key)
        prior = IndexedMLP(*sizes, self.prior_hidden, index, key=prior_key)
        scale = self.prior_scale / jnp.sqrt(knowledge.temperature)
        return WithPrior(LinearHypermodel(network, index, key=model_key), Prior(prior, scale))

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=adaptive_decay(self.decay, knowledge))

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan."""
        return TrainingPlan(self.num_steps, self.num_index_samples, self.learning_rate)
