"""Several processes as one program, and requests to stop it."""

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from .._checks import check_positive

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What JAX, Gloo and NCCL say when another process does not answer, in lower case.
_LOST = (
    "gloo",
    "nccl",
    "coordination service",
    "heartbeat",
    "barrier",
    "connection",
    "unavailable:",
    "deadline_exceeded:",
)


class ProcessLostError(RuntimeError):
    """Another process of the run died or cannot be reached, so no process of the run can continue."""


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    detect: bool = False,
    timeout: int = 30,
) -> None:
    """Join this process with the others of its run, before anything else uses a device.

    Without arguments, the program is a single process. If one process of several dies, training raises
    `ProcessLostError` in the others the next time they need it, and JAX ends them within `timeout` seconds, or at once
    if the first process died.

    Args:
        coordinator: `host:port` of the first process.
        num_processes: number of processes.
        process_id: the number of this one, from zero.
        detect: whether to find all of this in the environment of Slurm, Open MPI, Kubernetes or a TPU pod.
        timeout: seconds without a heartbeat after which a process counts as dead.
    """
    check_positive("timeout", timeout)
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if detect:
        if len(missing) < 3:
            raise ValueError(f"`detect` must be false where processes are described by hand; got {given}.")
        jax.distributed.initialize(heartbeat_timeout_seconds=timeout)
        return
    if len(missing) == 3:
        return
    if missing or coordinator is None or num_processes is None or process_id is None:
        raise ValueError(f"`{missing[0]}` must be given where other flags of distributed training are; got {given}.")
    if not 0 <= process_id < num_processes:
        raise ValueError(f"`process_id` must be from 0 to {num_processes - 1}; got {process_id}.")
    jax.distributed.initialize(coordinator, num_processes, process_id, heartbeat_timeout_seconds=timeout)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `initialize` to a command line; `initialize_from` reads them."""
    group = parser.add_argument_group("several processes")
    group.add_argument("--distributed", action="store_true", help="find the other processes (Slurm, TPU pod, MPI)")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of the first process")
    group.add_argument("--num-processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process-id", type=int, metavar="I", help="number of this process, from zero")


def initialize_from(flags: Any) -> None:
    """Call `initialize` with the parsed flags of a command line."""
    initialize(flags.coordinator, flags.num_processes, flags.process_id, detect=flags.distributed)


def wait_for_all(name: str) -> None:
    """Wait until all processes have come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def is_anywhere(flag: bool) -> bool:
    """Return whether `flag` holds in any process."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def _is_lost(error: BaseException) -> bool:
    """Return whether an error, or what caused it, says that another process does not answer."""
    said = str(error).lower()
    if isinstance(error, jax.errors.JaxRuntimeError) and any(sign in said for sign in _LOST):
        return True
    return error.__cause__ is not None and _is_lost(error.__cause__)


@contextlib.contextmanager
def report_lost_process(advice: str) -> Iterator[None]:
    """Raise `ProcessLostError` with advice in place of the errors that the death of another process leads to."""
    try:
        yield
    except RuntimeError as error:
        if jax.process_count() == 1 or not _is_lost(error):
            raise
        raise ProcessLostError(
            f"Another of the {jax.process_count()} processes of this run died or cannot be reached. {advice} "
            f"Process {jax.process_index()} noticed it by: {str(error).splitlines()[0]}"
        ) from error


class StopRequest:
    """Notes SIGTERM and SIGINT while it is entered, instead of ending the program in the middle of a step.

    A second SIGINT acts as usual: pressing Ctrl-C twice stops immediately.
    """

    def __init__(self):
        """Initialize without a request."""
        self._received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        """Start noting signals; outside of the main thread Python delivers none."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self._received = number
        if number == signal.SIGINT:
            signal.signal(number, self._previous[number])

    def note_interrupt(self) -> None:
        """Note an interrupt that somebody else caught."""
        self._received = signal.SIGINT

    @property
    def is_urgent(self) -> bool:
        """Whether to stop before the block ends; several processes cannot, since each must make the same steps."""
        return self._received is not None and jax.process_count() == 1

    def agreed(self) -> str | None:
        """Return the name of the signal that stops training now, or None.

        Processes may be signaled at different steps, so all of them must ask at the same one.
        """
        found = self._received or 0
        if jax.process_count() > 1:
            found = int(np.max(multihost_utils.process_allgather(np.array(found))))
        return signal.Signals(found).name if found else None
