"""Requests to stop: preemption of a job, and Ctrl-C."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Notes SIGTERM and SIGINT while it is entered, instead of ending the program in the middle of a step.

    A second SIGINT acts as usual: who presses Ctrl-C twice does not want to wait.
    """

    def __init__(self):
        """Initialize without a request."""
        self._received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        """Begin to note signals; outside of the main thread Python has none."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal."""
        self._received = number
        if number == signal.SIGINT:
            signal.signal(number, self._previous[number])

    def agreed(self, *, is_meeting: bool) -> str | None:
        """Return the name of the signal that stops training now, or None.

        Processes may be signaled at different steps, so several of them stop only at steps where all ask each other.

        Args:
            is_meeting: whether this is such a step, in all processes.
        """
        if jax.process_count() == 1:
            found = self._received or 0
        elif is_meeting:
            found = int(np.max(multihost_utils.process_allgather(np.array(self._received or 0))))
        else:
            found = 0
        return signal.Signals(found).name if found else None
