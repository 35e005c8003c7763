"""Penalties on parameters (Section 4.2)."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import check_scalar
from .._enn import AbstractENN
from .._tree import sum_of_squares


class AbstractPenalty(eqx.Module):
    """A term of the loss that depends on parameters and index, not on the example."""

    @abc.abstractmethod
    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty.

        Args:
            enn: the whole ENN.
            params: its trainable part only, with `None` elsewhere: frozen parts are not penalized.
            z: the index.
        """


class L2(AbstractPenalty):
    r"""$\lambda \|\theta\|_2^2$ over the trainable parameters, as in Eq. (7) and (9)."""

    scale: Float[Array, ""]

    def __init__(self, scale: float | Float[Array, ""]):
        r"""Initialize with $\lambda$, an array so that sweeping it compiles once."""
        self.scale = check_scalar("l2", jnp.asarray(scale, dtype=float), minimum=0.0)

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the scaled sum of squares of the trainable parameters."""
        return self.scale * sum_of_squares(params)


def choose_penalty(l2: float | Float[Array, ""], penalty: AbstractPenalty | None) -> AbstractPenalty:
    """Return `penalty`, or `L2(l2)` if it is not given."""
    if penalty is None:
        return L2(l2)
    if not (isinstance(l2, float | int) and l2 == 0):
        raise ValueError(f"`l2` must be left at 0 where a `penalty` is given; got {l2}.")
    return penalty
