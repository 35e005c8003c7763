"""How the benchmarks measure: interleaved rounds, ratios of minima, XLA's counts."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Ratio(NamedTuple):
    """A measured ratio and its goal; `at_most` tells whether smaller is better."""

    name: str
    measured: float
    asked: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """Whether the measured value is on the good side."""
        return self.measured <= self.asked if self.at_most else self.measured >= self.asked


def minimum_times(
    functions: list[Callable[[], Any]], *, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the shortest time of each function, in seconds; `time.process_time` counts those of all cores.

    The functions take turns, so that a busy machine slows all of them; each has run once before, to compile.
    """
    for function in functions:
        jax.block_until_ready(function())
    times = [[] for _ in functions]
    for _ in range(rounds):
        for function, record in zip(functions, times, strict=True):
            start = clock()
            jax.block_until_ready(function())
            record.append(clock() - start)
    return [min(record) for record in times]


def counts_of(compiled: jax.stages.Compiled) -> dict[str, float]:
    """Return what XLA counts of a program; the body of a loop counts once, and what is zero may be left out."""
    analysis = compiled.cost_analysis()
    return dict((analysis[0] if isinstance(analysis, list) else analysis) or {})


def flops(compiled: jax.stages.Compiled) -> float:
    """Return XLA's count of floating-point operations; the body of a loop counts once."""
    return float(counts_of(compiled).get("flops", 0.0))


def temporary_bytes(compiled: jax.stages.Compiled) -> int:
    """Return the memory that a program needs beside its arguments and results."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        raise RuntimeError("This platform does not report how much memory a program needs.")
    return analysis.temp_size_in_bytes


def matmul_rate(size: int = 1024, *, rounds: int = 10) -> float:
    """Return the floating-point operations per second of a large product of matrices: the machine's limit."""
    matrix = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    (seconds,) = minimum_times([lambda: product(matrix)], rounds=rounds)
    return 2 * size**3 / seconds
