"""The agents `ensemble` and `ensemble+`: deep ensembles without and with prior functions (Table 1)."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, PRNGKeyArray

from ..._keys import named_keys
from ...bayes import Deterministic, Ensemble
from ...combinators import Prior, WithPrior
from ...losses import CrossEntropy
from ...networks import MLP
from .._problem import PriorKnowledge
from ._rules import adaptive_decay, mlp_with_bias, scaled_steps
from ._sgd import AbstractSGDAgent, TrainingPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleAgent(AbstractSGDAgent):
    r"""A deep ensemble: particles that differ in their initialization, on the same batches.

    Each step draws as many indices as there are particles, with replacement. The decay of all particles together is
    $s \sqrt\rho D / (T K)$: relative to its share of the loss, a particle has that of `mlp`.

    Attributes:
        num_particles: the number of particles $K$.
        hidden: sizes of the hidden layers of a particle.
        decay: the factor $s$ of the decay.
        learning_rate: learning rate of Adam.
        num_steps: number of steps.
        batch_strategy: whether the number of steps grows with the data ratio.
    """

    description: ClassVar[str] = "deep ensembles"
    hyperparameters: ClassVar[str] = "L2 decay, ensemble size"

    num_particles: int = 100
    hidden: tuple[int, ...] = (50, 50)
    decay: float = 1.0
    learning_rate: float = 1e-3
    num_steps: int = 1000
    batch_strategy: bool = False

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> Ensemble:
        """Return the particles before training; a larger ensemble begins with the smaller."""

        def particle(number: Int[Array, ""]) -> MLP:
            own_key = jr.fold_in(key, number)
            return MLP(knowledge.input_dim, knowledge.num_classes, self.hidden, feature_layers=(), key=own_key)

        return Ensemble(eqx.filter_vmap(particle)(jnp.arange(self.num_particles)))

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=adaptive_decay(self.decay / self.num_particles, knowledge))

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan."""
        steps = scaled_steps(self.num_steps, input_dim, num_train) if self.batch_strategy else self.num_steps
        return TrainingPlan(steps, self.num_particles, self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsemblePlusAgent(AbstractSGDAgent):
    r"""An ensemble whose particles have fixed random prior functions, of scale $s_p / \sqrt\rho$.

    Attributes:
        num_particles: the number of particles $K$.
        hidden: sizes of the hidden layers of a particle and of its prior function.
        prior_scale: the factor $s_p$ of the prior scale.
        decay: the factor of the decay, as in `EnsembleAgent`.
        learning_rate: learning rate of Adam.
        num_steps: number of steps.
        batch_strategy: whether the number of steps grows with the data ratio.
    """

    description: ClassVar[str] = "ensemble + prior functions"
    hyperparameters: ClassVar[str] = "L2 decay, ensemble size, prior scale, bootstrap"

    num_particles: int = 100
    hidden: tuple[int, ...] = (50, 50)
    prior_scale: float = 3.0
    decay: float = 1.0
    learning_rate: float = 1e-3
    num_steps: int = 1000
    batch_strategy: bool = False

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

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=adaptive_decay(self.decay / self.num_particles, knowledge))

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan."""
        steps = scaled_steps(self.num_steps, input_dim, num_train) if self.batch_strategy else self.num_steps
        return TrainingPlan(steps, self.num_particles, self.learning_rate)
