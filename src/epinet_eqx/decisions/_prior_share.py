"""The weight of a prior where the number of observations grows."""

import equinox as eqx
from jaxtyping import Array, Float, PyTree, Shaped

from .._enn import AbstractENN
from ..losses import AbstractLoss, AbstractPenalty


class PriorShare(AbstractPenalty):
    """A penalty over the number of observations: what a prior weighs in the mean of a loss over them."""

    penalty: AbstractPenalty
    num_observations: Float[Array, ""]

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the share."""
        return self.penalty(enn, params, z) / self.num_observations


def share_prior(loss: AbstractLoss, num_observations: Float[Array, ""]) -> AbstractLoss:
    """Return the loss with its penalty, which is that of all observations together, over their number."""
    return eqx.tree_at(lambda loss: loss.penalty, loss, PriorShare(loss.penalty, num_observations))
