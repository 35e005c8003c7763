"""Where groups of runs are computed: in this process, in several on this machine, or on a Dask cluster.

An executor maps a function over tasks and yields results as they come, in any order. It never writes: what is done is
written by the process that asked, so that a lost worker loses nothing but the group that it was computing, and that is
computed again. A function may yield several results per task: on this machine each is handed on as soon as it is there,
from a cluster all results of a task together.
"""

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from .errors import ReproduceError, UsageError, unknown
from .memory import share_programs

EXECUTORS = ("local", "dask")

# A group that takes its worker down so many times is itself the reason.
_MAX_LOST_WORKERS = 10

# So many times in a row, processes of this machine may be lost before any of them has finished a task.
_MAX_LOST_IN_VAIN = 3

# Seconds to wait for a result before looking whether a process has ended.
_PATIENCE = 0.2


class Executor(Protocol):
    """What computes tasks."""

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of the tasks, as they come."""
        ...


def _all_of(function: Callable[[Any], Iterable[Any]], task: Any) -> list[Any]:
    """Return all results of a task."""
    return list(function(task))


class InProcess:
    """One task after the other, here."""

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results in order."""
        for task in tasks:
            yield from function(task)


class _Sender:
    """The end of a pipe that the processes of a pool share; set when one of them starts."""

    writer: Any = None
    lock: Any = None


def _begin(writer: Any, lock: Any, programs: str) -> None:
    """Remember the end of the pipe and where programs are shared, in a process that begins."""
    _Sender.writer, _Sender.lock = writer, lock
    share_programs(programs)


def _send_all_of(function: Callable[[Any], Iterable[Any]], task: Any) -> None:
    """Send each result of a task as soon as it is there."""
    for result in function(task):
        with _Sender.lock:
            _Sender.writer.send(result)


class Processes:
    """Several processes of this machine, each with its share of the cores."""

    def __init__(self, num_workers: int):
        """Initialize with the number of processes."""
        self.num_workers = num_workers

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results as they come.

        If a process is lost, new ones compute what was not finished: what had come of that comes again.
        """
        left, in_vain = list(tasks), 0
        with tempfile.TemporaryDirectory(prefix="programs-", ignore_cleanup_errors=True) as programs:
            while left:
                finished = yield from self._map_while_alive(function, left, programs)
                left = [task for place, task in enumerate(left) if place not in finished]
                in_vain = 0 if finished else in_vain + 1
                if in_vain == _MAX_LOST_IN_VAIN:
                    raise ReproduceError(
                        f"A process that computes was killed {in_vain} times before it was done, perhaps for want of "
                        "memory; what was finished is kept. Fewer `--workers` need less."
                    )

    def _map_while_alive(
        self, function: Callable[[Any], Iterable[Any]], tasks: Sequence[Any], programs: str
    ) -> Generator[Any, None, set[int]]:
        """Yield results until all tasks are done or a process is lost; return the places of the finished tasks."""
        # JAX has threads: a fork of it may hang.
        context = multiprocessing.get_context("spawn")
        reader, writer = context.Pipe(duplex=False)
        ends = {"initializer": _begin, "initargs": (writer, context.Lock(), programs)}
        finished: set[int] = set()
        with reader, writer, ProcessPoolExecutor(self.num_workers, mp_context=context, **ends) as pool:
            waiting = {pool.submit(_send_all_of, function, task): place for place, task in enumerate(tasks)}
            # All processes have their ends: what a lost one began to send ends when they are gone.
            writer.close()
            try:
                while waiting:
                    done = {future: place for future, place in waiting.items() if future.done()}
                    # What a process has sent before it was done is in the pipe by now.
                    try:
                        while reader.poll(0 if done else _PATIENCE):
                            yield reader.recv()
                    except (EOFError, OSError):
                        # No process is left, and perhaps half a message.
                        time.sleep(_PATIENCE)
                    finished |= {place for future, place in done.items() if future.exception() is None}
                    for future in done:
                        future.result()
                        del waiting[future]
            except BrokenProcessPool:
                pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in (pool._processes or {}).values():
                    process.terminate()
                raise
        return finished


class Dask:
    """The workers of a Dask cluster. A task whose worker is lost is given to another."""

    def __init__(self, client: Any):
        """Initialize with a client of the cluster."""
        self.client = client

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results as they come."""
        import distributed

        # `pure=False`: a task that is asked for again is computed again.
        futures = [self.client.submit(_all_of, function, task, pure=False) for task in tasks]
        for future in distributed.as_completed(futures):
            yield from future.result()


@contextlib.contextmanager
def _open_dask(workers: int, scheduler: str | None) -> Iterator[Dask]:
    """Yield an executor on a given cluster, or on one that lives as long as this."""
    try:
        import dask.config
        import distributed
    except ImportError:
        raise ReproduceError(
            "`--executor dask` needs a package that is not installed: `pip install 'epinet_eqx[dask]'` installs it."
        ) from None
    dask.config.set({"distributed.scheduler.allowed-failures": _MAX_LOST_WORKERS})
    if scheduler is not None:
        with distributed.Client(scheduler) as client:
            yield Dask(client)
        return
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield Dask(client)


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
        with _open_dask(workers, scheduler) as executor:
            yield executor
    else:
        yield InProcess() if workers == 1 else Processes(workers)
