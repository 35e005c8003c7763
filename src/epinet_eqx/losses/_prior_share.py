"""Penalties that stand for a prior, where the number of observations grows."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import check_scalar
from .._enn import AbstractENN
from .._tree import sum_of_squares, trainable_mask
from ._loss import AbstractLoss
from ._penalty import L2, AbstractPenalty


class PriorShare(AbstractPenalty):
    """A penalty divided by the number of observations, since the rest of the loss is a mean over them."""

    penalty: AbstractPenalty
    num_observations: Float[Array, ""]

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty of one observation."""
        return self.penalty(enn, params, z) / self.num_observations


class AnchoredL2(AbstractPenalty):
    r"""$\lambda \|\theta - \theta_0\|_2^2$: pulls toward the parameters before training instead of zero.

    An ENN whose initial parameters are a sample of the prior for each index then stays one where there are no data.
    """

    scale: Float[Array, ""]
    anchor: PyTree

    def __init__(self, scale: float | Float[Array, ""], anchor: PyTree):
        r"""Initialize with $\lambda$, and $\theta_0$, the trainable part of an ENN with `None` elsewhere."""
        self.scale = check_scalar("l2", jnp.asarray(scale, dtype=float), minimum=0.0)
        self.anchor = anchor

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the scaled squared distance of the trainable parameters to the anchor."""
        return self.scale * sum_of_squares(jax.tree.map(jnp.subtract, params, jax.lax.stop_gradient(self.anchor)))


def anchored(loss: AbstractLoss, enn: AbstractENN) -> AbstractLoss:
    """Return the loss with its `L2` penalty pulling toward the trainable parameters of `enn` instead of zero."""
    if not isinstance(loss.penalty, L2):
        raise ValueError(f"`loss` must have an `L2` penalty to be anchored; got {type(loss.penalty).__name__}.")
    penalty = AnchoredL2(loss.penalty.scale, eqx.filter(enn, trainable_mask(enn)))
    return eqx.tree_at(lambda loss: loss.penalty, loss, penalty)


def share_prior(loss: AbstractLoss, num_observations: Float[Array, ""]) -> AbstractLoss:
    """Return the loss with its penalty divided by the number of observations."""
    return eqx.tree_at(lambda loss: loss.penalty, loss, PriorShare(loss.penalty, num_observations))
