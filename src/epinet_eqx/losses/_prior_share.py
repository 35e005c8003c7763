"""A penalty that stands for a prior, where the number of observations grows."""

import equinox as eqx
from jaxtyping import Array, Float, PyTree, Shaped

from .._enn import AbstractENN
from ._loss import AbstractLoss
from ._penalty import AbstractPenalty


class PriorShare(AbstractPenalty):
    """A penalty divided by the number of observations, since the rest of the loss is a mean over them."""

    penalty: AbstractPenalty
    num_observations: Float[Array, ""]

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty of one observation."""
        return self.penalty(enn, params, z) / self.num_observations


def share_prior(loss: AbstractLoss, num_observations: Float[Array, ""]) -> AbstractLoss:
    """Return the loss with its penalty divided by the number of observations."""
    return eqx.tree_at(lambda loss: loss.penalty, loss, PriorShare(loss.penalty, num_observations))
