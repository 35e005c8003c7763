"""Computation in reduced precision with parameters in single precision."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from .._enn import AbstractENN
from ..indices import AbstractIndex
from ..losses import AbstractLoss, AbstractPenalty


def cast_floats(tree: PyTree, dtype: Any) -> PyTree:
    """Return `tree` with its floating-point arrays in `dtype`; as it is if `dtype` is None."""
    if dtype is None:
        return tree
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def check_dtype(name: str, dtype: Any) -> Any:
    """Return `dtype` as a data type, which must be a floating-point one, or None."""
    if dtype is None:
        return None
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"`{name}` must be a floating-point type such as jnp.bfloat16, or None; got {dtype!r}.")
    return jnp.dtype(dtype)


class InPrecision(AbstractENN):
    """An ENN that computes in another precision than that of its parameters, and returns single precision.

    Gradients come back in the precision of the parameters; an index keeps its own, so a bootstrap does not change.
    """

    enn: AbstractENN
    dtype: np.dtype = eqx.field(static=True)

    def __init__(self, enn: AbstractENN, dtype: np.dtype):
        """Initialize with the ENN, and the type that it computes in."""
        self.enn = enn
        self.dtype = dtype

    @property
    def index(self) -> AbstractIndex:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The index of the ENN."""
        return self.enn.index

    def _call(self, method: str, *inputs: Any) -> PyTree[Array]:
        """Return what a method of the ENN gives for these inputs, all in reduced precision."""
        cast = cast_floats(self.enn, self.dtype)
        # Some ENNs make arrays of their own in single precision: what meets those goes on in it.
        with jax.numpy_dtype_promotion("standard"):
            return getattr(cast, method)(*cast_floats(inputs, self.dtype))

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding in reduced precision."""
        return self._call("embed", x)

    def heads(self, embedding: PyTree[Array], zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices."""
        return self._call("heads", embedding, zs).astype(jnp.float32)


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
