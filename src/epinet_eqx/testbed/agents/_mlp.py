"""The agent `mlp`: a conventional network (Table 1)."""

import dataclasses
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from ...bayes import Deterministic
from ...losses import CrossEntropy
from ...networks import MLP
from .._problem import PriorKnowledge
from ._rules import adaptive_decay
from ._sgd import AbstractSGDAgent, TrainingPlan


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
        """Return the plan: one index, for there is no other."""
        return TrainingPlan(self.num_steps, 1, self.learning_rate)
