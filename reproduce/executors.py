"""Where groups of runs are computed: in this process, in several on this machine, or on a Dask cluster.

An executor maps a function over tasks and yields results as they come, in any order. It never writes: what is done is
written by the process that asked, so that a lost worker loses nothing but the group that it was computing, and that is
computed again. A function may yield several results per task: on this machine each is handed on as soon as it is there,
from a cluster all results of a task together.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from .cluster import open_dask
from .errors import UsageError, unknown
from .processes import Processes

EXECUTORS = ("local", "dask")


class Executor(Protocol):
    """What computes tasks."""

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of the tasks, as they come."""
        ...


class InProcess:
    """One task after the other, here."""

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results in order."""
        for task in tasks:
            yield from function(task)


@contextlib.contextmanager
def open_executor(name: str, *, workers: int = 1, scheduler: str | None = None) -> Iterator[Executor]:
    """Yield an executor by its name, and close it.

    Args:
        name: one of `EXECUTORS`.
        workers: number of processes on this machine.
        scheduler: address of a Dask scheduler that is running.
    """
    if name not in EXECUTORS:
        raise unknown("--executor", name, EXECUTORS)
    if workers < 1:
        raise UsageError(f"`--workers` must be at least 1; got {workers}.")
    if scheduler is not None and name != "dask":
        raise UsageError(f"`--scheduler` is for `--executor dask`; got `--executor {name}`.")
    if name == "dask":
        with open_dask(workers, scheduler) as executor:
            yield executor
    else:
        yield InProcess() if workers == 1 else Processes(workers)
