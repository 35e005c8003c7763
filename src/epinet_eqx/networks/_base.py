"""Any callable as a base network, checked to hold every array it reads."""

import functools as ft
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._tree import Frozen
from ._abstract import AbstractNetwork, FunctionNetwork

_BASE_MUST = "`base` must hold the arrays that it reads"
_ADVICE = (
    "Pass them as `params`: `attach(lambda params, x: (output, features), params=params, ...)`; then they are saved, "
    "and trained with `freeze=False`."
)


def as_network(base: Any, features: Callable[..., Any] | None = None, params: PyTree = None) -> AbstractNetwork:
    """Return `base` as a network that yields output and features in one pass; see `attach` for the arguments."""
    if isinstance(base, Frozen):
        raise ValueError("`base` must be the bare network; pass `freeze=True` to freeze it.")
    if not callable(base):
        raise ValueError(f"`base` must be callable; got {type(base).__name__}.")
    if params is not None and jax.tree.leaves(eqx.filter(base, eqx.is_array)):
        raise ValueError(
            "`params` must be left out for a base that holds arrays itself, such as an Equinox module; "
            f"got both for {type(base).__name__}."
        )
    if features is None and params is None and isinstance(base, AbstractNetwork):
        return base
    _refuse_shared(base, features)
    return FunctionNetwork(base, features, params=params)


def _refuse_shared(base: Any, features: Any) -> None:
    """Raise if both hold the same array: the tree would have two copies, and training would move only one."""
    held = {id(leaf) for leaf in jax.tree.leaves(base) if eqx.is_array(leaf)}
    shared = [leaf for leaf in jax.tree.leaves(features) if eqx.is_array(leaf) and id(leaf) in held]
    if shared:
        raise ValueError(
            f"`features` must not hold arrays of `base`; got {len(shared)} in both. A network of this library yields "
            "its features itself: `attach(net, ...)`. Any other yields both in one pass by "
            "`attach(lambda net, x: (output, features), params=net, ...)`, or by `networks.Tapped`."
        )


def _captured(value: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """Yield the NumPy arrays that a Python function reads but does not receive as arguments."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, ft.partial):
        parts: list[Any] = [value.func, value.args, value.keywords]
    elif inspect.ismethod(value):
        parts = [value.__func__, value.__self__]
    elif inspect.isfunction(value):
        read = inspect.getclosurevars(value)
        # Only globals that are data: functions of a library are not the user's parameters.
        names = {name: part for name, part in read.globals.items() if not callable(part) and not inspect.ismodule(part)}
        parts = [*read.nonlocals.values(), *names.values(), value.__defaults__, value.__kwdefaults__]
    else:
        leaves = jax.tree.leaves(value)
        yield from (leaf for leaf in leaves if isinstance(leaf, np.ndarray) and leaf.ndim > 0)
        parts = [leaf for leaf in leaves if inspect.isroutine(leaf) or isinstance(leaf, ft.partial)]
    for part in parts:
        yield from _captured(part, seen)


def _constants(jaxpr: Any) -> Iterator[Any]:
    """Yield the arrays that a traced function, or a function it calls, closed over."""
    if isinstance(jaxpr, jax.extend.core.ClosedJaxpr):
        yield from jaxpr.consts
        jaxpr = jaxpr.jaxpr
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves([*equation.params.values()], is_leaf=lambda node: isinstance(node, _JAXPRS)):
            if isinstance(part, _JAXPRS):
                yield from _constants(part)


def _is_raw_key(array: Any) -> bool:
    """Return whether this is an untyped random key, which libraries have as a default argument."""
    return array.dtype == np.uint32 and array.shape == (2,)


_JAXPRS = (jax.extend.core.ClosedJaxpr, jax.extend.core.Jaxpr)


def trace_base(network: AbstractNetwork, example: PyTree) -> tuple[Any, Any]:
    """Return the shapes of output and features at one example; raise if the network reads arrays it does not hold.

    A saved file would lack such arrays, and training could not reach them.
    """
    dynamic, static = eqx.partition(network, eqx.is_array)
    shapes: list[Any] = []

    def run(dynamic: Any, x: Any) -> Any:
        result = eqx.combine(dynamic, static).with_features(x)
        shapes.append(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), result))
        return result

    x = jax.tree.map(jnp.asarray, example)
    try:
        jaxpr = jax.make_jaxpr(run)(dynamic, x)
    except (AttributeError, IndexError, TypeError) as error:
        found = jax.tree.map(jnp.shape, x)
        called = "base(x)" if getattr(network, "params", None) is None else "base(params, x)"
        raise ValueError(
            f"`base` must accept `example`, one input without a batch axis, as `{called}`; got shapes {found}: {error}"
        ) from error
    # Literals in the function are NumPy arrays; a JAX array existed before and was captured.
    hidden = {id(constant): constant for constant in _constants(jaxpr) if isinstance(constant, jax.Array)}
    if isinstance(network, FunctionNetwork):
        for part in (network.function, network.features):
            hidden |= {id(array): array for array in _captured(part, set())}
    hidden = {name: array for name, array in hidden.items() if array.ndim > 0 and not _is_raw_key(array)}
    if hidden:
        numbers = sum(array.size for array in hidden.values())
        both = isinstance(network, FunctionNetwork) and network.features is not None
        who = "`base` and `features` must hold the arrays that they read" if both else _BASE_MUST
        raise ValueError(f"{who}; got a function that hides {len(hidden)} of them, {numbers} numbers. {_ADVICE}")
    return shapes[-1]
