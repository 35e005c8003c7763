"""Computation in reduced precision with parameters in single precision."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._enn import AbstractENN
from .._tree import cast_floats as cast_floats
from ..combinators import InPrecision
from ..losses import AbstractLoss, AbstractPenalty


def check_dtype(name: str, dtype: Any) -> Any:
    """Return `dtype` as a data type, which must be a floating-point one, or None."""
    if dtype is None:
        return None
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"`{name}` must be a floating-point type such as jnp.bfloat16, or None; got {dtype!r}.")
    return jnp.dtype(dtype)


class _InnerPenalty(AbstractPenalty):
    """A penalty that sees the ENN itself, with parameters in their own precision."""

    penalty: AbstractPenalty

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty of the wrapped ENN."""
        return self.penalty(enn.enn if isinstance(enn, InPrecision) else enn, params, z)


def in_precision(enn: AbstractENN, loss: AbstractLoss, dtype: Any) -> tuple[AbstractENN, AbstractLoss]:
    """Return the ENN that computes in `dtype`, with a loss for it; both as they are if `dtype` is None."""
    if dtype is None:
        return enn, loss
    return InPrecision(enn, dtype), eqx.tree_at(lambda node: node.penalty, loss, replace_fn=_InnerPenalty)
