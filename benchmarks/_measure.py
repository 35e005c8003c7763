"""How the benchmarks measure: interleaved rounds, ratios of minima, XLA's counts."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Ratio(NamedTuple):
    """A measured ratio beside what is asked of it; `at_most` says which side is good."""

    name: str
    measured: float
    asked: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """Whether the measured value is on the good side."""
        return self.measured <= self.asked if self.at_most else self.measured >= self.asked


def minimum_times(functions: list[Callable[[], Any]], *, rounds: int) -> list[float]:
    """Return the shortest time of each function, in seconds.

    The functions take turns, so that a busy machine slows all of them; each has run once before, to compile.
    """
    for function in functions:
        jax.block_until_ready(function())
    times = [[] for _ in functions]
    for _ in range(rounds):
        for function, record in zip(functions, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(function())
            record.append(time.perf_counter() - start)
    return [min(record) for record in times]


def flops(compiled: jax.stages.Compiled) -> float:
    """Return XLA's count of floating-point operations; the body of a loop counts once."""
    analysis = compiled.cost_analysis()
    counts = analysis[0] if isinstance(analysis, list) else analysis
    return float((counts or {}).get("flops", 0.0))


def temporary_bytes(compiled: jax.stages.Compiled) -> int:
    """Return the memory that a program needs beside its arguments and results."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        raise RuntimeError("This platform does not tell how much memory a program needs.")
    return analysis.temp_size_in_bytes
