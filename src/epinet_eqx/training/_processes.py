"""Several processes as one program, and requests to stop it."""

import argparse
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    detect: bool = False,
) -> None:
    """Join this process with the others of its run, before anything else uses a device.

    Without arguments, the program is a single process.

    Args:
        coordinator: `host:port` of the first process.
        num_processes: number of processes.
        process_id: the number of this one, from zero.
        detect: whether to find all of this in the environment of Slurm, Open MPI, Kubernetes or a TPU pod.
    """
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if detect:
        if len(missing) < 3:
            raise ValueError(f"`detect` must be false where processes are described by hand; got {given}.")
        jax.distributed.initialize()
        return
    if len(missing) == 3:
        return
    if missing or coordinator is None or num_processes is None or process_id is None:
        raise ValueError(f"`{missing[0]}` must be given where other flags of distributed training are; got {given}.")
    if not 0 <= process_id < num_processes:
        raise ValueError(f"`process_id` must be from 0 to {num_processes - 1}; got {process_id}.")
    jax.distributed.initialize(coordinator, num_processes, process_id)


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


class StopRequest:
    """Notes SIGTERM and SIGINT while it is entered, instead of ending the program in the middle of a step.

    A second SIGINT acts as usual: whoever presses Ctrl-C twice does not want to wait.
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
