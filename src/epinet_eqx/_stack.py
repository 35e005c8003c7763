"""Modules stacked along a leading axis: the particles of an ensemble (Section 3.2)."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree


def _with_paths(module: PyTree) -> dict[str, Any]:
    """Return the leaves of `module` by their paths."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(module)}


def _check_no_numpy(name: str, module: PyTree) -> None:
    """Raise if `module` holds NumPy arrays: Equinox does not count them as arrays and would not map over them."""
    for path, leaf in _with_paths(module).items():
        if isinstance(leaf, np.ndarray):
            raise ValueError(f"`{name}{path}` must be a JAX array; got a NumPy array of shape {leaf.shape}.")


def _describe(leaf: Any) -> str:
    """Describe a leaf for an error message."""
    return f"{leaf.dtype} of shape {leaf.shape}" if eqx.is_array(leaf) else repr(leaf)


def _check_same_structure(name: str, module: PyTree, first: PyTree) -> None:
    """Raise unless `module` differs from `first` in the values of its arrays only; name the first leaf that differs."""
    expected, found = _with_paths(first), _with_paths(module)
    for path in sorted(expected.keys() - found.keys()):
        raise ValueError(f"`{name}` must have a leaf `{path}` as the first particle has; got none.")
    for path in sorted(found.keys() - expected.keys()):
        raise ValueError(
            f"`{name}` must have no leaf `{path}` as the first particle has none; got {_describe(found[path])}."
        )
    for path in expected:
        if eqx.is_array(expected[path]) and eqx.is_array(found[path]):
            same = (expected[path].shape, expected[path].dtype) == (found[path].shape, found[path].dtype)
        else:
            same = expected[path] is found[path] or bool(expected[path] == found[path])
        if not same:
            raise ValueError(
                f"`{name}{path}` must be {_describe(expected[path])} as in the first particle; "
                f"got {_describe(found[path])}."
            )
    if jax.tree.structure(module) != jax.tree.structure(first):
        raise ValueError(
            f"`{name}` must have the static fields of the first particle, "
            f"{jax.tree.structure(first)}; got {jax.tree.structure(module)}."
        )


def stack(name: str, modules: Sequence[PyTree]) -> Any:
    """Return one module with a leading axis on every array, from modules of the same structure."""
    if not modules:
        raise ValueError(f"`{name}` must hold at least one module; got none.")
    for number, module in enumerate(modules):
        _check_no_numpy(f"{name}[{number}]", module)
        _check_same_structure(f"{name}[{number}]", module, modules[0])
    stacks, rest = zip(*(eqx.partition(module, eqx.is_array) for module in modules), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *stacks), rest[0])


def num_stacked(name: str, module: PyTree) -> int:
    """Return the common leading size of all arrays of a stacked module."""
    _check_no_numpy(name, module)
    sizes = {path: leaf.shape[:1] for path, leaf in _with_paths(module).items() if eqx.is_array(leaf)}
    if not sizes:
        raise ValueError(f"`{name}` must hold arrays with a leading axis, one entry per particle; got none.")
    first, expected = next(iter(sizes.items()))
    for path, size in sizes.items():
        if size in ((), (0,)):
            raise ValueError(f"`{name}{path}` must have a leading axis, one entry per particle; got size {size}.")
        if size != expected:
            raise ValueError(
                f"`{name}{path}` must have as many particles as `{name}{first}`, {expected[0]}; got {size[0]}."
            )
    return expected[0]


def take(module: PyTree, z: Int[Array, ""]) -> Any:
    """Return particle `z` of a stacked module."""
    return jax.tree.map(lambda leaf: leaf[z] if eqx.is_array(leaf) else leaf, module)
