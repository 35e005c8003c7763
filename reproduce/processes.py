"""Tasks on several processes of this machine, any of which may be killed at any time.

Each worker has a pipe of its own and shares nothing else with the others: no queue, no lock. A process that is killed
while it holds a shared lock, or halfway through a message in a shared pipe, can stop all others for good; here its own
pipe closes, the parent sees that, and hands the task to a new worker. The same pipe tells a worker that its parent is
gone, however it went: a thread reads it all the time, and ends the process when it closes.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import shutil
import signal
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from .errors import ReproduceError
from .memory import share_programs

# `pickle` reads nothing here but what a parent and the processes that it started send each other: their pipes have no
# name that anyone else could open.

# JAX has threads, and a forked copy of it may hang.
_CONTEXT = multiprocessing.get_context("spawn")

# A task that has cost this many processes is abandoned: it is probably what kills them.
_MAX_LOST = 3

# Seconds of silence after which to look for dead workers whose pipe is kept open by a process that they started.
_LOOK = 1.0

# Seconds that a worker has to end before it is killed.
_GRACE = 5.0


def _messages(pipe: Connection, programs: str) -> Iterator[bytes]:
    """Yield what the parent sends until it sends nothing; the process ends at once if the pipe closes."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        message = b"any"
        try:
            while message:
                message = pipe.recv_bytes()
                waiting.put(message)
        except (EOFError, OSError):
            # A parent that was killed cannot clean up.
            shutil.rmtree(programs, ignore_errors=True)
            os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while message := waiting.get():
        yield message


def _portable(error: Exception) -> Exception:
    """Return an error as it can be sent: with its traceback as a note, as text if it cannot be pickled."""
    where = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = ReproduceError(f"{type(error).__name__}: {error}")
    error.add_note(where)
    return error


def _work(pipe: Connection, programs: str) -> None:
    """Compute tasks until there are no more; send each result when it is ready, then how the task ended."""
    # Ctrl-C in a terminal reaches all processes; the parent is the one that answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A program that a task starts must not keep the pipe open after this process.
    os.set_inheritable(pipe.fileno(), False)
    share_programs(programs)
    for message in _messages(pipe, programs):
        try:
            # Here, since what it imports may import JAX, which must find the shared programs.
            function, task = pickle.loads(message)
            for result in function(task):
                pipe.send(("result", result))
            pipe.send(("done", None))
        except Exception as error:
            pipe.send(("error", _portable(error)))


class _Worker:
    """A process and the parent's end of its pipe."""

    def __init__(self, programs: str):
        """Start a process that shares compiled programs in a folder."""
        self.pipe, other_end = _CONTEXT.Pipe()
        # Not a daemon: a task may have processes of its own, such as those that decode images.
        self.process = _CONTEXT.Process(target=_work, args=(other_end, programs))
        self.process.start()
        # Only the worker holds this end now, so that the pipe closes when the worker dies.
        other_end.close()

    def receive(self) -> tuple[str, Any]:
        """Return the next message, or `lost` if the process has died, perhaps halfway through a message."""
        try:
            if self.pipe.poll():
                return self.pipe.recv()
        except (EOFError, OSError):
            pass
        return ("lost", None)

    def send(self, function: Callable[[Any], Iterable[Any]], task: Any) -> None:
        """Send a task. That a dead process cannot take it is noticed when nothing can be received."""
        with contextlib.suppress(OSError):
            self.pipe.send((function, task))

    def dismiss(self) -> None:
        """Tell the process that there are no more tasks, so that it ends in order."""
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(b"")

    def close(self) -> None:
        """Wait for the end of a process that is dismissed or whose pipe is closed, but not for long."""
        self.process.join(_GRACE)
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def _with_news(workers: Iterable[_Worker]) -> list[_Worker]:
    """Wait, and return the workers that have sent something or died."""
    by_pipe: dict[Any, _Worker] = {worker.pipe: worker for worker in workers}
    ready = [by_pipe[pipe] for pipe in wait(list(by_pipe), _LOOK)]
    return ready or [worker for worker in by_pipe.values() if not worker.process.is_alive()]


class Processes:
    """Several processes of this machine, each with its share of the cores."""

    def __init__(self, num_workers: int):
        """Initialize with the number of processes."""
        self.num_workers = num_workers

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results as they come.

        If a process is lost, a new one computes its task again: what had come of that task comes again.
        """
        waiting = deque(enumerate(tasks))
        lost: dict[int, int] = {}
        busy: dict[_Worker, tuple[int, Any]] = {}
        with tempfile.TemporaryDirectory(prefix="programs-", ignore_cleanup_errors=True) as programs:
            idle = [_Worker(programs) for _ in range(min(self.num_workers, len(waiting)))]
            try:
                while waiting or busy:
                    while waiting and idle:
                        worker = idle.pop()
                        busy[worker] = waiting.popleft()
                        worker.send(function, busy[worker][1])
                    for worker in _with_news(busy):
                        kind, value = worker.receive()
                        if kind == "result":
                            yield value
                        elif kind == "done":
                            del busy[worker]
                            idle.append(worker)
                        elif kind == "error":
                            raise value
                        else:
                            place, task = busy.pop(worker)
                            worker.close()
                            lost[place] = lost.get(place, 0) + 1
                            if lost[place] == _MAX_LOST:
                                raise ReproduceError(
                                    f"A process that computes was killed {_MAX_LOST} times in the same task, perhaps "
                                    "for want of memory; what was finished is kept. Fewer `--workers` need less."
                                )
                            waiting.appendleft((place, task))
                            idle.append(_Worker(programs))
            finally:
                for worker in idle:
                    worker.dismiss()
                for worker in busy:
                    worker.pipe.close()
                for worker in (*busy, *idle):
                    worker.close()
