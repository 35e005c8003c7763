"""The agent `hypermodel` (Table 1)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..._keys import named_keys
from ...bayes import IndexedMLP, LinearHypermodel
from ...combinators import Prior, WithPrior
from ...indices import ScaledGaussianIndex
from ...losses import CrossEntropy
from ...networks import MLP
from .._problem import PriorKnowledge
from ._rules import adaptive_decay
from ._sgd import AbstractSGDAgent, TrainingPlan


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
