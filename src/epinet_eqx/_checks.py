"""Checks of arguments: each error is a sentence with the argument, the requirement and the value."""

import difflib
import importlib
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn, TypeAlias, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

Scalar: TypeAlias = float | Float[Array, ""]
"""A number, or an array of one, which may be traced: sweeping it compiles once."""


def require_package(name: str, *, extra: str = "data") -> ModuleType:
    """Return an optional package, or raise an error that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"`{name.split('.')[0]}` is needed here; install it with `pip install 'epinet_eqx[{extra}]'`."
        ) from error


def unknown_name(argument: str, value: str, known: Iterable[str], *, shown: int = 8) -> ValueError:
    """Return the error for an unknown name, with suggestions: similar names, or the first `shown` if none is similar.

    Args:
        argument: the name of the argument.
        value: its value.
        known: all known names.
        shown: number of names to list if none is similar; the rest is counted.
    """
    names = list(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.6)
    listed = close or names[:shown]
    rest = "" if close or len(names) <= shown else f" and {len(names) - shown} more"
    near = "near it are " if close else "there are "
    return ValueError(f"`{argument}` must be a known name, {near}{', '.join(listed)}{rest}; got {value!r}.")


def is_traced(x: object) -> TypeGuard[Array]:
    """Return whether `x` is traced, so that its values are unknown."""
    return isinstance(x, Tracer)


def any_traced(tree: PyTree) -> bool:
    """Return whether a leaf is traced: another program is being made, and this call becomes a part of it."""
    return any(map(is_traced, jax.tree.leaves(tree)))


def check_key(name: str, key: Any) -> None:
    """Raise unless `key` is one random key of JAX."""
    found = f"{key.dtype} of shape {key.shape}" if isinstance(key, Array | np.ndarray) else type(key).__name__
    is_typed = isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    is_raw = isinstance(key, Array | np.ndarray) and key.dtype == np.uint32
    if not is_typed and not is_raw:
        raise ValueError(f"`{name}` must be a random key, such as `jax.random.key(0)`; got {found}.")
    if key.ndim != int(is_raw):
        raise ValueError(f"`{name}` must be one random key, of which `jax.random.split` makes several; got {found}.")


def check_function(name: str, function: Any) -> None:
    """Raise unless `function` can be called."""
    if not callable(function):
        raise ValueError(f"`{name}` must be a function; got {type(function).__name__}.")


def check_positive(name: str, value: int) -> None:
    """Raise unless `value` is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer; got {value!r}.")


def check_sizes(name: str, values: Sequence[int]) -> None:
    """Raise unless every entry of `values` is a positive integer."""
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must hold positive integers only; got {tuple(values)!r}.")


def check_shape(name: str, x: Shaped[Array, "..."], shape: tuple[int, ...]) -> None:
    """Raise unless `x` is an array of exactly this shape."""
    if not hasattr(x, "shape"):
        raise ValueError(f"`{name}` must be an array of shape {shape}; got {type(x).__name__}.")
    if x.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}; got {x.shape}.")


def require(x: PyTree, failed: Array | bool | np.bool_, message: str) -> PyTree:
    """Return `x`; raise `message` where `failed` holds: now if its value is known, else when the program runs."""
    if is_traced(failed):
        return eqx.error_if(x, failed, message)
    if bool(failed):
        raise ValueError(message)
    return x


def on_host(leaf: Shaped[Array, "..."]) -> Any:
    """Return an array that is in the memory of the CPU as a NumPy array, which needs no compiled programs."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if is_traced(leaf) or any(device.platform != "cpu" for device in leaf.devices()) or not leaf.is_fully_addressable:
        return leaf
    return np.asarray(leaf)


# One small program each, instead of one for each operation.
@jax.jit
def _count_nonfinite(leaf: Shaped[Array, "..."]) -> Int[Array, ""]:
    return jnp.sum(~jnp.isfinite(leaf))


@jax.jit
def _extremes(y: Int[Array, "..."]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    return jnp.min(y), jnp.max(y)


def check_finite(name: str, tree: PyTree) -> PyTree:
    """Return `tree`, whose floating-point arrays must hold neither NaN nor infinity."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    for leaf in floats:
        host = on_host(leaf)
        if isinstance(host, np.ndarray) and (stored := jax.dtypes.canonicalize_dtype(host.dtype)) != host.dtype:
            # What is too large for the precision of JAX is infinite there.
            with np.errstate(over="ignore"):
                host = host.astype(stored)
        count = np.sum(~np.isfinite(host)) if isinstance(host, np.ndarray) else _count_nonfinite(leaf)
        if not is_traced(count):
            count = int(count)
        found = "" if is_traced(count) else f"; got {count} non-finite of {leaf.size} values"
        tree = require(tree, count > 0, f"`{name}` must be finite{found}.")
    return tree


def refuse_nan(name: str, values: Float[Array, "..."]) -> None:
    """Raise if `values` are known and hold NaN: for functions that compiled programs call in their loops."""
    # On the host, where arrays that a compiled program closes over are known, too.
    known = None if is_traced(values) else on_host(values)
    if known is not None and bool((count := (known != known).sum()) > 0):
        raise ValueError(f"`{name}` must not hold NaN; got {int(count)} of {values.size} values.")


def check_labels(name: str, y: Int[Array, "..."], num_classes: int) -> Int[Array, "..."]:
    """Return `y`, whose entries must be classes `0..num_classes - 1`."""
    if y.size == 0:
        raise ValueError(f"`{name}` must not be empty; got shape {y.shape}.")
    host = on_host(y)
    low, high = (host.min(), host.max()) if isinstance(host, np.ndarray) else _extremes(y)
    if not is_traced(low):
        low, high = int(low), int(high)
    failed = (low < 0) | (high >= num_classes)
    found = "" if is_traced(failed) else f"; got values from {low} to {high}"
    return require(y, failed, f"`{name}` must hold classes from 0 to {num_classes - 1}{found}.")


def refuse_mask(name: str, values: Any) -> None:
    """Raise for a masked array of NumPy: its mask would be lost, and what it hides would count."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"`{name}` must have no mask, such as the result of `.filled(value)`; got a masked array of shape "
            f"{values.shape}."
        )


def check_width(name: str, leaf: Any) -> Any:
    """Return `leaf`; the integers of a NumPy array must fit the type that JAX gives them, or they would wrap around."""
    refuse_mask(name, leaf)
    if not isinstance(leaf, np.ndarray) or not np.issubdtype(leaf.dtype, np.integer) or leaf.size == 0:
        return leaf
    stored = jax.dtypes.canonicalize_dtype(leaf.dtype)
    if stored == leaf.dtype:
        return leaf
    low, high, bounds = int(leaf.min()), int(leaf.max()), np.iinfo(stored)
    if low < bounds.min or high > bounds.max:
        raise ValueError(
            f"`{name}` must hold integers from {bounds.min} to {bounds.max}, the range of {stored}, unless "
            f"`jax_enable_x64` is set; got values from {low} to {high}."
        )
    return leaf


def as_real_array(name: str, values: Any) -> Array:
    """Return `values` as a JAX array; they must be real numbers, and integers that JAX does not wrap around."""
    refuse_mask(name, values)
    found = values if isinstance(values, Array) else check_width(name, np.asarray(values))
    if not any(jnp.issubdtype(found.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise ValueError(f"`{name}` must hold real numbers; got {found.dtype}.")
    # A value too large for the precision becomes infinite, which `check_finite` refuses; NumPy need not warn of it.
    with np.errstate(over="ignore"):
        return jnp.asarray(found)


def as_floats(name: str, values: Any) -> Float[Array, "..."]:
    """Return values as floating-point numbers; what is traced comes back unchanged."""
    if is_traced(values):
        return values
    found = as_real_array(name, values)
    return found if jnp.issubdtype(found.dtype, jnp.floating) else found.astype(float)


def as_known_real(name: str, values: Any, shape: tuple[int, ...] | None = None) -> Float[Array, "..."]:
    """Return values as floating-point numbers, not NaN; what is traced is not checked, apart from its shape.

    For functions that compiled programs call in their loops.
    """
    values = as_floats(name, values)
    refuse_nan(name, values)
    if shape is not None:
        check_shape(name, values, shape)
    return values


def raise_wrong_input(name: str, model: str, x: PyTree, error: Exception) -> NoReturn:
    """Re-raise an error of `model` about one of the inputs `x` with the shapes of all; other errors pass unchanged."""
    if isinstance(error, ValueError) and not str(error).startswith("`x`"):
        raise error
    found = jax.tree.map(jnp.shape, x)
    raise ValueError(
        f"`{name}` must hold inputs that `{model}` accepts, along a leading batch axis; got shape {found}: {error}"
    ) from error


def as_number(name: str, value: Any, dtype: Any = float) -> Float[Array, ""]:
    """Return `value` as a scalar of JAX."""
    refuse_mask(name, value)
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"`{name}` must be a number; got {value!r}.")
    try:
        array = jnp.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"`{name}` must be a number; got {value!r}.") from None
    if array.shape != () and not is_traced(array):
        raise ValueError(f"`{name}` must be one number; got shape {array.shape}.")
    return array


def check_scalar(name: str, value: Any, *, minimum: float = -float("inf"), dtype: Any = float) -> Float[Array, ""]:
    """Return `value` as an array, which must be finite and at least `minimum`."""
    array = as_number(name, value, dtype)
    found = "" if is_traced(array) else f"; got {float(array)}"
    bound = "" if minimum == -float("inf") else f" and at least {minimum:g}"
    number = on_host(array)
    # Compare with infinity, since `isfinite` of NumPy and of JAX each accept only their own arrays.
    failed = ~((number >= minimum) & (abs(number) < float("inf")))
    return require(array, failed, f"`{name}` must be finite{bound}{found}.")


def check_share(name: str, value: Scalar, *, below_one: bool = False) -> Float[Array, ""]:
    """Return `value` as an array, which must be from 0 to 1, or below 1."""
    array = as_number(name, value, float)
    found = "" if is_traced(array) else f"; got {float(array)}"
    number = on_host(array)
    failed = ~((number >= 0) & ((number < 1) if below_one else (number <= 1)))
    return require(array, failed, f"`{name}` must be {'in [0, 1)' if below_one else 'from 0 to 1'}{found}.")


def num_examples(name: str, tree: PyTree) -> int:
    """Return the common length of the leading axis of all arrays of `tree`, which must not be empty."""
    leaves = jax.tree.leaves(tree)
    if any(isinstance(leaf, bool | int | float) for leaf in leaves):
        raise ValueError(f"`{name}` must hold arrays; got lists of numbers, of which `np.asarray` makes arrays.")
    for leaf in leaves:
        refuse_mask(name, leaf)
        is_complex = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.complexfloating)
        if is_complex or (isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSUmM"):
            raise ValueError(f"`{name}` must hold real numbers; got {leaf.dtype}.")
    shapes = [jnp.shape(leaf) for leaf in leaves]
    if not shapes or any(shape == () for shape in shapes):
        raise ValueError(f"`{name}` must hold arrays with a leading batch axis; got shapes {shapes}.")
    lengths = sorted({shape[0] for shape in shapes})
    if len(lengths) > 1:
        raise ValueError(f"`{name}` must hold arrays with one batch size; got leading sizes {lengths}.")
    if lengths[0] == 0:
        raise ValueError(f"`{name}` must not be empty; got shapes {shapes}.")
    return lengths[0]


def check_mask(name: str, values: Any, length: int) -> Bool[Array, " batch"]:
    """Return a boolean mask of the selected entries; positions would be mistaken for booleans."""
    refuse_mask(name, values)
    found = values if isinstance(values, Array) else np.asarray(values)
    if found.shape != (length,) or found.dtype != bool:
        raise ValueError(
            f"`{name}` must hold one boolean per candidate, {length}; got shape {found.shape} of {found.dtype}."
        )
    return jnp.asarray(found)


def check_level(name: str, level: float) -> None:
    """Raise unless a float distinguishes the probabilities of a central interval and its tails from 0 and 1."""
    least = 16 * float(jnp.finfo(jnp.zeros(()).dtype).eps)
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not least <= level <= 1 - least:
        raise ValueError(f"`{name}` must be between 0 and 1, by at least {least:.1g}; got {level!r}.")


def check_available(
    name: str, size: int, pool_size: int, available: Bool[Array, " batch"] | None
) -> Bool[Array, " batch"]:
    """Return which inputs of a pool may be chosen, at least `size` of them."""
    check_positive(name, size)
    available = jnp.ones(pool_size, bool) if available is None else check_mask("available", available, pool_size)
    if size > pool_size:
        raise ValueError(f"`{name}` must be at most the size of the pool, {pool_size}; got {size}.")
    left = jnp.sum(available)
    found = "" if is_traced(left) else f", {int(left)}"
    message = f"`{name}` must be at most the number of inputs that are available{found}; got {size}."
    return require(available, left < size, message)
