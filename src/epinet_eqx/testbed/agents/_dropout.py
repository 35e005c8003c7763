"""The agent `dropout` (Table 1)."""

import dataclasses
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from ...bayes import MCDropout, dropout_mlp
from ...losses import CrossEntropy
from ...networks import truncated_normal_with_bias
from .._problem import PriorKnowledge
from ._rules import adaptive_decay
from ._sgd import AbstractSGDAgent, TrainingPlan


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
