"""Ways to make XLA fast on CPUs, each with the benchmark that justifies it, and right; elsewhere they do no harm.

Two rules need no function. Random numbers are drawn as long vectors and reshaped: with a short axis innermost, XLA
unrolls the rounds of the generator for each of its entries (`nox -s bench -- first_call`). Convolutions keep channels
last, see `networks/_layers.py` (`nox -s bench -- features`).
"""

import functools as ft
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._checks import is_traced, on_host

_F = TypeVar("_F", bound=Callable[..., Any])

# Typed loosely: Equinox passes further options to JAX, which its annotations do not mention.
_jit: Any = eqx.filter_jit

# Later versions of XLA have no such switch.
_NO_EMITTERS = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}

# More entries than in the default chunk of indices would make long programs.
_MAX_IN_TURN = 16

# Fewer entries are summed at once whatever XLA does: products of small arrays would be more programs, not faster ones.
_MANY_ENTRIES = 2**16

# Products that XLA compiles wrongly -----------------------------------------------------------------------------------


@jax.custom_batching.custom_vmap
def _unknown_place(beside: Float[Array, "..."]) -> Array:
    """Return 0 or 1, which XLA cannot know before the program runs."""
    return jnp.isnan(beside.ravel()[0]).astype(jnp.int32)


@_unknown_place.def_vmap
def _(axis_size: int, batched: list[bool], beside: Float[Array, "..."]) -> tuple[Array, bool]:
    # One place for a whole batch, so that what is hidden is not copied for each entry.
    return (_unknown_place(beside[0]) if axis_size else jnp.zeros((), jnp.int32)), False


def hide_constant(parameter: Float[Array, "..."], beside: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `parameter`, which is to be multiplied by `beside`, in a form that XLA does not take for a broadcast.

    A product with a broadcast number, fused with a maximum over many outputs, reads memory beyond its factor: with
    jaxlib 0.10.2 and 0.12.0, on CPUs with YNNPACK. Arrays that a compiled function closes over are constants of its
    program, and a constant of equal entries, such as the biases of an untrained layer, becomes a broadcast. What is
    passed as an argument is traced and comes back as it is, as do all constants of different entries.
    """
    if is_traced(parameter) or not is_traced(beside) or 0 in (parameter.size, beside.size):
        return parameter
    known = on_host(parameter)
    if not isinstance(known, np.ndarray) or not (known == known.flat[0]).all():
        return parameter
    # XLA removes an optimization barrier before it fuses. This writes a row over an equal one.
    start = (_unknown_place(jax.lax.stop_gradient(beside)), *(0 for _ in parameter.shape[1:]))
    return jax.lax.dynamic_update_slice(parameter, parameter[:1], start)


# How much to optimize a program: one that runs once should not take longer to compile than to run --------------------


def jit_unoptimized(function: _F) -> _F:
    """Compile a function whose run time does not matter, in a fraction of the usual time.

    `nox -s bench -- first_call`.
    """
    return _jit(function, compiler_options={"xla_backend_optimization_level": 0, **_NO_EMITTERS})


def jit_for_one_run(function: _F) -> _F:
    """Compile a function that runs once, for a few seconds: half the compile time of `filter_jit`, equally fast.

    Meant for many small operations, or many normal variables to draw. `nox -s bench -- first_call`.
    """
    return _jit(function, compiler_options={"xla_backend_optimization_level": 1, **_NO_EMITTERS})


def jit_constructor(function: _F) -> _F:
    """Compile everything that a constructor draws as one program; within another program it is a part of that one.

    A third of the time of one operation after another (`nox -s bench -- first_call`).
    """
    compiled = jit_for_one_run(function)

    @ft.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # JAX takes compiler options for outermost programs only; in a program, even constants are traced.
        is_inside = is_traced(jnp.asarray(np.zeros(())))
        return (function if is_inside else compiled)(*args, **kwargs)

    return call  # pyright: ignore[reportReturnType]


def jit_for_long_vectors(function: _F) -> _F:
    """Compile a function that runs for seconds over long vectors: half the compile time of `filter_jit`, and faster.

    Vectors of 512 bits pay off where long arrays are mapped by `exp`; a CPU without them ignores the option.
    `nox -s bench -- testbed`.
    """
    return _jit(function, compiler_options={"xla_backend_optimization_level": 1, "xla_cpu_prefer_vector_width": 512})


# Reductions that XLA compiles badly ----------------------------------------------------------------------------------


def sum_by_product(valid: Bool[Array, " samples"], values: Float[Array, "samples *shape"]) -> Float[Array, "*shape"]:
    """Return the sum of the valid entries as a matrix product, several times faster than a reduction.

    `nox -s bench -- streaming`.
    """
    return jnp.tensordot(valid.astype(values.dtype), values, axes=1, precision=jax.lax.Precision.HIGHEST)


def sum_of_squares(values: Float[Array, "*shape"]) -> Float[Array, ""]:
    """Return the sum of squares, that of many entries as a product: XLA would compute a gradient again for a reduction.

    `nox -s bench -- large_epinet`.
    """
    if values.size < _MANY_ENTRIES:
        return jnp.sum(jnp.square(values))
    return jnp.vdot(values, values, precision=jax.lax.Precision.HIGHEST)


def sum_in_turn(valid: Bool[Array, " samples"], values: Float[Array, "samples *shape"]) -> Float[Array, "*shape"]:
    """Return the sum of the valid entries one after the other: `values` are computed on the way, and never stored.

    For few entries, since the program grows with them. `nox -s bench -- streaming`.
    """
    if values.shape[0] > _MAX_IN_TURN:
        return sum_by_product(valid, values)
    return sum(jnp.where(own, value, 0) for own, value in zip(valid, values, strict=True))  # pyright: ignore


def max_by_halves(values: Float[Array, "samples *shape"]) -> Float[Array, "*shape"]:
    """Return the largest entry along the leading axis by pairwise maxima of halves, faster than a reduction.

    `nox -s bench -- streaming`.
    """
    while (count := values.shape[0]) > 1:
        half = -(-count // 2)
        # The halves of an odd number overlap, which does not change the maximum.
        values = jnp.maximum(values[:half], values[count - half :])
    return values[0]


def any_by_product(flags: Bool[Array, " n"]) -> Bool[Array, ""]:
    """Return whether any flag is set, as a product: a reduction of many flags compiles to a page of code.

    `nox -s bench -- first_call`.
    """
    return flags.astype(float) @ jnp.ones(flags.shape) > 0
