"""The counted cost of a program, which does not depend on the load of the machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax

from epinet_eqx import count_parameters, trainable_mask

from ._measure import counts_of, temporary_bytes
from .programs import MakeProgram, Program

VALUES = (1.0, 2.0, 3.0)
_COMPILATION = "/jax/core/compile/backend_compile_duration"


def _is_array_like(leaf: Any) -> bool:
    """Return whether a leaf is an array or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _parameters(program: Program) -> dict[str, int]:
    """Return the numbers of parameters of the model: all, and those that are trained."""
    trained = eqx.filter(program.model, trainable_mask(program.model))
    return {"parameters": count_parameters(program.model), "trained": count_parameters(trained)}


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Collect the compilations that happen within."""
    found: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == _COMPILATION:
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class _Traced:
    """A pure program, traced for shapes only: nothing is computed, and compilation is lazy."""

    def __init__(self, program: Program):
        self.traces = 0
        self._function = program.function
        self._jitted = jax.jit(self._run, static_argnums=1)

    def _run(self, arrays: Any, static: tuple[Any, Any]) -> Any:
        self.traces += 1
        leaves, structure = static
        return eqx.filter(self._function(*eqx.combine(arrays, jax.tree.unflatten(structure, leaves))), eqx.is_array)

    def trace(self, program: Program) -> jax.stages.Traced:
        """Return the program at these arguments; counts if it was not known from others already."""
        arrays, static = eqx.partition(program.args, _is_array_like)
        leaves, structure = jax.tree.flatten(static)
        return self._jitted.trace(arrays, (tuple(leaves), structure))


def _shapes(make: MakeProgram, value: float) -> tuple[Program, dict[str, int]]:
    """Return a program whose arrays are shapes, and the parameters of its model."""

    def build() -> tuple[Any, Any, dict[str, int]]:
        program = make(value)
        return program.function, program.args, _parameters(program)

    function, args, parameters = eqx.filter_eval_shape(build)
    return Program(function, args, None), parameters


def lower(make: MakeProgram) -> jax.stages.Lowered:
    """Return a pure program before it is compiled."""
    program, _ = _shapes(make, VALUES[0])
    return _Traced(program).trace(program).lower()


def count_program(make: MakeProgram) -> dict[str, float]:
    """Return what XLA counts of a pure program, how often three calls trace it, and its parameters."""
    program, parameters = _shapes(make, VALUES[0])
    traced = _Traced(program)
    first, *_ = [traced.trace(_shapes(make, value)[0]) for value in VALUES]
    compiled = first.lower().compile()
    counted = counts_of(compiled)
    return {
        "operations": counted.get("flops", 0.0),
        "bytes": counted.get("bytes accessed", 0.0),
        "memory": temporary_bytes(compiled),
        "traces": traced.traces,
        **parameters,
    }


def count_entry_point(make: MakeProgram) -> dict[str, float]:
    """Return how often three calls trace an entry point: once, and whatever the later ones compile."""
    program, *others = [make(value) for value in VALUES]
    program.function(*program.args)
    with compilations() as found:
        for other in others:
            program.function(*other.args)
    return {"traces": 1 + len(found), **_parameters(program)}
