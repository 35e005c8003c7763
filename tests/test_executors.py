"""Where groups are computed: in order here, side by side in processes, and on a Dask cluster that loses a worker."""

import os
import pathlib
import signal
import time

import jax
import pytest

from reproduce import memory
from reproduce.errors import ReproduceError, UsageError
from reproduce.executors import _Sender, open_executor

pytestmark = pytest.mark.once


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
        with _Sender.lock:
            os.write(_Sender.writer.fileno(), b"\x00\x00\xff\xff only this")
            os.kill(os.getpid(), signal.SIGKILL)
    yield number


def compile_or_read(number):
    """Compile a program, or read it; yield where programs are shared and how many are there."""
    folder = pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.jit(lambda x: x * 2 + number)(1.0).block_until_ready()
    yield str(folder), len(list(folder.glob("*-cache")))


def test_the_local_executor_keeps_the_order():
    with open_executor("local") as executor:
        assert list(executor.map(square, [1, 2, 3])) == [1, 4, 9]


def test_results_of_a_task_come_one_by_one_here():
    with open_executor("local") as executor:
        found = executor.map(count_to, [2, 3])
        assert next(found) == 0
        assert list(found) == [1, 0, 1, 2]


def test_processes_compute_all_tasks():
    with open_executor("local", workers=2) as executor:
        assert sorted(executor.map(square, range(8))) == [number**2 for number in range(8)]


def test_results_of_a_process_come_one_by_one(tmp_path):
    seen = tmp_path / "seen"
    with open_executor("local", workers=2) as executor:
        found = executor.map(hand_over, [str(seen)])
        assert next(found) == "first"
        seen.touch()
        assert list(found) == ["second"]


def test_what_came_before_an_error_is_kept():
    results = []
    with open_executor("local", workers=2) as executor, pytest.raises(ValueError, match="no second of 7"):
        results.extend(executor.map(first_of_two, [7]))
    # `extend` takes what comes one by one, as the runner does.
    assert results == [7]


def test_an_error_in_a_process_arrives_here():
    with open_executor("local", workers=2) as executor, pytest.raises(ZeroDivisionError):
        list(executor.map(one_over, [0]))


def test_a_killed_process_loses_nothing(tmp_path):
    with open_executor("local", workers=2) as executor:
        found = list(executor.map(first_and_die_once, [(number, str(tmp_path)) for number in range(6)]))
    assert set(found) == {number**power for number in range(6) for power in (1, 2)}


def test_a_message_that_a_killed_process_began_is_dropped(tmp_path):
    with open_executor("local", workers=2) as executor:
        found = set(executor.map(die_in_the_middle_of_a_message, [(number, str(tmp_path)) for number in range(4)]))
    assert found == {0, 1, 2, 3}


def test_a_task_that_always_kills_its_process_gets_a_sentence():
    with open_executor("local", workers=2) as executor, pytest.raises(ReproduceError, match="killed 3 times"):
        list(executor.map(die, [1]))


def test_a_killed_dask_worker_loses_nothing(tmp_path):
    pytest.importorskip("distributed")
    results = []
    with open_executor("dask", workers=2) as executor:
        pending = executor.map(square_where, [(number, str(tmp_path)) for number in range(6)])
        for value, process in pending:
            results.append((value, process))
            victim = tmp_path / "victim"
            while not victim.exists():
                time.sleep(0.05)
            if len(results) == 1:
                killed = int(victim.read_text())
                os.kill(killed, signal.SIGKILL)
    assert sorted(value for value, _ in results) == [number**2 for number in range(6)]
    assert dict(results)[9] != killed


def test_processes_share_programs_while_they_are_needed(monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    with open_executor("local", workers=2) as executor:
        # The same program four times, by one process or the other.
        found = list(executor.map(compile_or_read, [1, 1, 1, 1]))
    (folder,) = {folder for folder, _ in found}
    assert [count for _, count in found] == [1, 1, 1, 1]
    assert not pathlib.Path(folder).exists()


def test_a_store_of_programs_that_the_user_named_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    with open_executor("local", workers=2) as executor:
        assert {folder for folder, _ in executor.map(compile_or_read, [1, 2])} == {str(tmp_path)}
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "dsk"}, "dask"),
        ({"name": "local", "workers": 0}, "`--workers` must be at least 1; got 0"),
        ({"name": "local", "scheduler": "tcp://host:1"}, "`--scheduler` is for `--executor dask`"),
    ],
)
def test_bad_options_get_a_sentence(options, words):
    with pytest.raises(UsageError, match=words), open_executor(**options):
        pass


def test_programs_are_forgotten_before_they_hold_all_memory_maps(tmp_path, monkeypatch):
    limit, maps = tmp_path / "limit", tmp_path / "maps"
    limit.write_text("10\n")
    monkeypatch.setattr(memory, "_MAX_MAPS", limit)
    monkeypatch.setattr(memory, "_MAPS", maps)
    double = jax.jit(lambda x: 2 * x)
    double(1.0)
    maps.write_text("map\n" * 5)
    memory.forget_programs()
    assert double._cache_size() == 1
    maps.write_text("map\n" * 6)
    memory.forget_programs()
    assert double._cache_size() == 0
