"""Trees of parameters: frozen parts, the trainable mask, sizes."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from . import _xla
from ._checks import is_traced

_T = TypeVar("_T")


class Frozen(eqx.Module, Generic[_T]):
    """A part of a model that training never changes: a prior network, a pretrained base, a scale.

    Stopping gradients alone is not enough, because weight decay also moves parameters without a gradient. So a frozen
    part is also outside `trainable_mask`, which decides what an optimizer and a penalty see.
    """

    content: _T

    @property
    def value(self) -> _T:
        """The content, with gradients stopped."""
        # What is known has no gradient; it stays known to a program that closes over it.
        traced, rest = eqx.partition(self.content, is_traced)
        return eqx.combine(jax.lax.stop_gradient(traced), rest)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the content, with gradients to its parameters stopped."""
        return self.value(*args, **kwargs)  # pyright: ignore[reportCallIssue]


def is_frozen(node: Any) -> bool:
    """Return whether `node` is a `Frozen` part."""
    return isinstance(node, Frozen)


def unwrap(part: _T | Frozen[_T]) -> _T:
    """Return `part` itself, or the stopped value of a frozen one."""
    return part.value if isinstance(part, Frozen) else part  # pyright: ignore[reportReturnType]


def trainable_mask(tree: PyTree) -> PyTree[bool]:
    """Return a tree of booleans: true for each floating-point array that is not inside a `Frozen` part."""

    def mask(node: Any) -> PyTree[bool]:
        if is_frozen(node):
            return jax.tree.map(lambda _: False, node)
        return eqx.is_inexact_array(node)

    return jax.tree.map(mask, tree, is_leaf=is_frozen)


def freeze(tree: _T, where: Callable[[_T], Any]) -> _T:
    """Return `tree` with the part that `where` selects replaced by its frozen version."""
    return eqx.tree_at(
        where, tree, replace_fn=lambda part: part if is_frozen(part) else Frozen(part), is_leaf=is_frozen
    )


def sum_of_squares(tree: PyTree) -> Float[Array, ""]:
    r"""Return $\|\theta\|_2^2$ over the floating-point arrays of `tree`."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return sum((_xla.sum_of_squares(leaf) for leaf in leaves), start=jnp.zeros(()))


def count_parameters(tree: PyTree) -> int:
    """Return the number of floating-point parameters of `tree`."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)))


def cast_floats(tree: PyTree, dtype: Any) -> PyTree:
    """Return `tree` with its floating-point arrays in `dtype`; unchanged if `dtype` is None."""
    if dtype is None:
        return tree
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def as_arrays(tree: PyTree) -> PyTree:
    """Return `tree` with its NumPy arrays as JAX arrays: Equinox does not treat NumPy arrays as parameters."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)
