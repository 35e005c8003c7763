"""Tasks for tests of executors, in a module that a new process imports at once: it loads no JAX."""

import gc
import json
import multiprocessing
import os
import pathlib
import signal
import time
from multiprocessing.connection import Connection

kept = []


def square(number):
    yield number * number


def count_to(number):
    yield from range(number)


def one_over(number):
    yield 1 // number


def hand_over(file):
    """Yield a result, and another one once the first has been seen."""
    yield "first"
    while not pathlib.Path(file).exists():
        time.sleep(0.01)
    yield "second"


def one_waits(folder):
    """Yield a name and the process; the task that is a folder waits in it for a file before it is done."""
    if folder == "quick":
        yield "quick", os.getpid()
        return
    time.sleep(1)
    yield "waits", os.getpid()
    while not pathlib.Path(folder, "seen").exists():
        time.sleep(0.01)
    time.sleep(0.5)
    yield "done", os.getpid()


def first_of_two(number):
    yield number
    raise ValueError(f"no second of {number}")


def square_where(task):
    """Yield a square and the process that computed it; the first to see its task is killed in the middle of it."""
    number, folder = task
    victim = pathlib.Path(folder) / "victim"
    if number == 3 and not victim.exists():
        victim.write_text(str(os.getpid()))
        time.sleep(60)
    yield number * number, os.getpid()


def first_and_die_once(task):
    """Yield a number and its square; the first process to compute 3 is killed in between."""
    number, folder = task
    yield number
    victim = pathlib.Path(folder) / "victim"
    if number == 3 and not victim.exists():
        victim.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield number * number


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)
    yield number


def die_in_the_middle_of_a_message(task):
    """Begin to send a message and be killed, once; then be well."""
    number, folder = task
    victim = pathlib.Path(folder) / "victim"
    if not victim.exists():
        victim.touch()
        for pipe in [thing for thing in gc.get_objects() if isinstance(thing, Connection) and thing.writable]:
            os.write(pipe.fileno(), b"\x00\x00\xff\xff only this")
        os.kill(os.getpid(), signal.SIGKILL)
    yield number


def three_parts(number):
    """Yield three results, some of them larger than a pipe holds."""
    for part in range(3):
        yield number, part, os.getpid(), "x" * (200_000 if number % 3 == 0 else 10)


def sleep_in(folder):
    """Say where programs are shared and which process this is, then sleep."""
    about = {"process": os.getpid(), "programs": os.environ["JAX_COMPILATION_CACHE_DIR"]}
    (pathlib.Path(folder) / f"{os.getpid()}.writing").write_text(json.dumps(about))
    (pathlib.Path(folder) / f"{os.getpid()}.writing").rename(pathlib.Path(folder) / f"{os.getpid()}.json")
    time.sleep(600)
    yield


def sleep_if_folder(task):
    """Yield a number, or sleep."""
    if isinstance(task, str):
        time.sleep(600)
    yield task


def hold_a_lock(number):
    """Make a lock that is kept as long as the process, as progress bars do."""
    kept.append(multiprocessing.get_context("spawn").RLock())
    yield number


class PeculiarError(Exception):
    """An error that cannot be made again from its words, as pickling does."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raise_peculiar(number):
    yield number
    raise PeculiarError("this", "that")
