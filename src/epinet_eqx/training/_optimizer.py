"""Optimizers compared by content, so that two `optax.adam(1e-3)` share one compiled program."""

import functools as ft
import types
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._checks import is_traced

_SCALARS = (bool, int, str, bytes, type(None))


class _Same:
    """Any object, equal to itself only; holding it keeps its identity from being reused."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _is_from_optax(function: types.FunctionType) -> bool:
    """Return whether a function was defined by optax: its globals never change, those of a notebook may."""
    return function.__module__.partition(".")[0] == "optax"


def _content(value: Any, seen: frozenset[int] = frozenset()) -> Hashable:
    """Return the content of a value in hashable form; values with equal content behave the same.

    Looks into containers, arrays, and functions of optax with the values that they close over. Everything else, such
    as a schedule that the user wrote, equals itself only.
    """
    kind, inside = type(value), ft.partial(_content, seen=seen | {id(value)})
    if id(value) in seen:
        return _Same(value)
    if kind in (float, complex):
        # By representation: 0.0 differs from -0.0, and nan equals nan.
        return kind, repr(value)
    if kind in _SCALARS or isinstance(value, type | np.dtype):
        return kind, value
    if kind in (list, tuple) or hasattr(kind, "_fields"):
        return kind, tuple(map(inside, value))
    if kind is dict:
        return kind, tuple((inside(name), inside(item)) for name, item in value.items())
    if kind is ft.partial:
        return kind, inside(value.func), inside(value.args), inside(value.keywords)
    if isinstance(value, types.FunctionType) and _is_from_optax(value):
        try:
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
        except ValueError:
            # A cell without a value.
            return _Same(value)
        return value.__code__, inside(cells), inside(value.__defaults__), inside(value.__kwdefaults__)
    if isinstance(value, np.ndarray | np.generic | jax.Array) and _is_readable(value):
        array = np.asarray(value)
        return kind, str(value.dtype), getattr(value, "weak_type", False), array.shape, array.tobytes()
    return _Same(value)


def _is_readable(array: Any) -> bool:
    """Return whether an array has numbers that this process can read."""
    if isinstance(array, jax.Array):
        is_here = not is_traced(array) and array.is_fully_addressable
        return is_here and not jnp.issubdtype(array.dtype, jax.dtypes.extended)
    return not array.dtype.hasobject


class ByContent:
    """An optimizer that equals every other with the same update rule: a static argument of compiled programs."""

    def __init__(self, value: optax.GradientTransformation):
        """Initialize with the optimizer; its content is read now."""
        self.value = value
        self._content = _content(value)
        self._hash = hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByContent) and other._content == self._content

    def __hash__(self) -> int:
        return self._hash
