"""A program compiled for its arguments, to be called and counted."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax

from ._measure import flops
from .programs import Program


class CompiledProgram(NamedTuple):
    """A compiled program: `call()` runs it, and XLA's counts are those of `compiled`."""

    call: Callable[[], Any]
    compiled: jax.stages.Compiled
    trips: int

    @property
    def operations(self) -> float:
        """Counted operations; those of the body of a loop as often as it runs."""
        return self.trips * flops(self.compiled)


def compile_program(program: Program) -> CompiledProgram:
    """Compile a program once, for its own arguments."""
    arrays, static = eqx.partition(program.args, eqx.is_array)

    def run(arrays: Any) -> Any:
        return eqx.filter(program.function(*eqx.combine(arrays, static)), eqx.is_array)

    compiled = jax.jit(run).lower(arrays).compile()
    return CompiledProgram(lambda: compiled(arrays), compiled, program.trips)
