"""The agent `bbb`: Bayes by backprop (Table 1)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ...bayes import BayesByBackprop
from ...losses import CrossEntropy, GaussianKL
from ...networks import MLP
from .._problem import PriorKnowledge
from ._sgd import AbstractSGDAgent, TrainingPlan


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
