"""The agent `epinet` (Section 5, Appendix F.3)."""

import dataclasses
from typing import ClassVar, Literal

from jaxtyping import PRNGKeyArray

from ..._keys import named_keys
from ...epinet import Epinet, MLPEpinet, mlp_prior
from ...indices import GaussianIndex
from ...losses import CrossEntropy
from ...networks import MLP, Initializer, glorot_uniform, truncated_normal
from .._problem import PriorKnowledge
from ._baselines import over_data
from ._sgd import AbstractSGDAgent, TrainingPlan

_INITIALIZERS: dict[str, Initializer] = {"glorot": glorot_uniform, "truncated_normal": truncated_normal}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpinetAgent(AbstractSGDAgent):
    r"""An MLP with an epinet, trained together; the epinet sees the input and the last hidden layer.

    The prior is $\alpha \sum_i z_i p^i(x)$ with $\alpha = a / \rho$; the decay is $s (D / T)^q$.

    Attributes:
        index_dim: dimension $D_Z$ of the index, and number of prior networks.
        hidden: sizes of the hidden layers of the base network.
        epinet_hidden: sizes of the hidden layers of the learnable epinet.
        prior_hidden: sizes of the hidden layers of each prior network.
        prior_scale: the factor $a$ of the prior scale.
        decay: the factor $s$ of the decay.
        decay_power: the power $q$ of the decay.
        initializer: of the learnable epinet: Glorot's as in the paper, or the truncated normal of the authors' code.
        stop_gradient: whether to stop gradients of the epinet's input, as in the paper; the authors' code does not.
        learning_rate: learning rate of Adam.
        num_steps: number of steps up to a data ratio of 500.
        num_steps_large: number of steps beyond.
        num_index_samples: index samples per step; by default the dimension of the index.
    """

    description: ClassVar[str] = "MLP + MLP epinet (this paper)"
    hyperparameters: ClassVar[str] = "L2 decay, network, prior, index dimension"

    index_dim: int = 8
    hidden: tuple[int, ...] = (50, 50)
    epinet_hidden: tuple[int, ...] = (15, 15)
    prior_hidden: tuple[int, ...] = (5, 5)
    prior_scale: float = 0.3
    decay: float = 0.2
    decay_power: float = 0.7
    initializer: Literal["glorot", "truncated_normal"] = "glorot"
    stop_gradient: bool = True
    learning_rate: float = 1e-3
    num_steps: int = 1000
    num_steps_large: int = 10_000
    num_index_samples: int | None = None

    def init(self, knowledge: PriorKnowledge, *, key: PRNGKeyArray) -> Epinet:
        """Return the base network with its epinet before training."""
        base_key, epinet_key, prior_key = named_keys(key, "base", "epinet", "prior")
        in_dim, classes = knowledge.input_dim, knowledge.num_classes
        base = MLP(in_dim, classes, self.hidden, feature_layers=(0, -1), key=base_key)
        learnable = MLPEpinet(
            base.feature_dim,
            self.index_dim,
            classes,
            hidden=self.epinet_hidden,
            initializer=_INITIALIZERS[self.initializer],
            key=epinet_key,
        )
        scale = self.prior_scale / knowledge.temperature
        prior = mlp_prior(in_dim, self.index_dim, classes, hidden=self.prior_hidden, scale=scale, key=prior_key)
        index = GaussianIndex(self.index_dim)
        return Epinet(base, learnable, (prior,), index, stop_gradient=self.stop_gradient)

    def loss(self, knowledge: PriorKnowledge) -> CrossEntropy:
        """Return the loss."""
        return CrossEntropy(l2=self.decay * over_data(knowledge) ** self.decay_power)

    def plan(self, input_dim: int, num_train: int) -> TrainingPlan:
        """Return the plan: longer for much data."""
        steps = self.num_steps if num_train / input_dim <= 500 else self.num_steps_large
        samples = self.index_dim if self.num_index_samples is None else self.num_index_samples
        return TrainingPlan(steps, samples, self.learning_rate)
