"""Where groups are computed: here in order, in processes side by side, on a Dask cluster; and what kills do to them."""

import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import executor_tasks as tasks
import jax
import pytest

from reproduce import __main__ as cli
from reproduce import memory
from reproduce.errors import ReproduceError, UsageError
from reproduce.executors import open_executor

pytestmark = pytest.mark.once


def wait_until(condition):
    """Wait for a condition; a minute is long enough for everything here."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited for a minute in vain")


def is_running(process):
    """Return whether a process exists and is not one that has ended and that nobody has asked about."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def compile_or_read(number):
    """Compile a program, or read it; yield where programs are shared and how many are there."""
    folder = pathlib.Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.jit(lambda x: x * 2 + number)(1.0).block_until_ready()
    yield str(folder), len(list(folder.glob("*-cache")))


def test_the_local_executor_keeps_the_order():
    with open_executor("local") as executor:
        assert list(executor.map(tasks.square, [1, 2, 3])) == [1, 4, 9]


def test_results_of_a_task_come_one_by_one_here():
    with open_executor("local") as executor:
        found = executor.map(tasks.count_to, [2, 3])
        assert next(found) == 0
        assert list(found) == [1, 0, 1, 2]


def test_processes_compute_all_tasks():
    with open_executor("local", workers=2) as executor:
        assert sorted(executor.map(tasks.square, range(8))) == [number**2 for number in range(8)]


def test_results_of_a_process_come_one_by_one(tmp_path):
    seen = tmp_path / "seen"
    with open_executor("local", workers=2) as executor:
        found = executor.map(tasks.hand_over, [str(seen)])
        assert next(found) == "first"
        seen.touch()
        assert list(found) == ["second"]


def test_what_came_before_an_error_is_kept():
    results = []
    with open_executor("local", workers=2) as executor, pytest.raises(ValueError, match="no second of 7"):
        results.extend(executor.map(tasks.first_of_two, [7]))
    # `extend` takes what comes one by one, as the runner does.
    assert results == [7]


def test_an_error_in_a_process_arrives_here():
    with open_executor("local", workers=2) as executor, pytest.raises(ZeroDivisionError):
        list(executor.map(tasks.one_over, [0]))


def test_a_killed_process_loses_nothing(tmp_path):
    with open_executor("local", workers=2) as executor:
        found = list(executor.map(tasks.first_and_die_once, [(number, str(tmp_path)) for number in range(6)]))
    assert set(found) == {number**power for number in range(6) for power in (1, 2)}


def test_a_message_that_a_killed_process_began_is_dropped(tmp_path):
    with open_executor("local", workers=2) as executor:
        found = set(
            executor.map(tasks.die_in_the_middle_of_a_message, [(number, str(tmp_path)) for number in range(4)])
        )
    assert found == {0, 1, 2, 3}


@pytest.mark.parametrize("every", [1, 3, 10])
def test_workers_killed_at_any_moment_lose_nothing(every):
    """Kill one of the workers, busy or idle, after every so many results."""
    found, latest, killed_at = set(), {}, []
    with open_executor("local", workers=2) as executor:
        for count, (number, part, process, _) in enumerate(executor.map(tasks.three_parts, range(60))):
            found.add((number, part))
            latest[process] = number
            alive = [child.pid for child in multiprocessing.active_children() if child.pid]
            # Never three times in the same task: that is given up.
            victims = [pid for pid in alive if pid in latest and latest[pid] not in killed_at]
            if count % every == 0 and victims and len(killed_at) < 10:
                os.kill(victims[0], signal.SIGKILL)
                killed_at.append(latest[victims[0]])
    assert found == {(number, part) for number in range(60) for part in range(3)}
    assert len(killed_at) >= 3


def start(script, folder, **options):
    """Start Python with a script that knows the folder and the modules of the tests."""
    path = folder / "script.py"
    path.write_text(script)
    here = pathlib.Path(__file__).parent
    paths = os.pathsep.join([str(here.parent), str(here), *sys.path])
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, str(path), str(folder)], env={**environment, "PYTHONPATH": paths}, **options
    )


END_BADLY = """
import multiprocessing, os, pathlib, signal, sys, threading
from reproduce.executors import open_executor
from executor_tasks import one_waits

if __name__ == "__main__":
    with open_executor("local", workers=2) as executor:
        found = executor.map(one_waits, ["quick", sys.argv[1]])
        assert next(found)[0] == "quick"
        name, busy = next(found)
        (idle,) = {child.pid for child in multiprocessing.active_children()} - {busy}
        os.kill(idle, signal.SIGSTOP)
        pathlib.Path(sys.argv[1], "seen").touch()
        threading.Timer(2.0, os.kill, (idle, signal.SIGKILL)).start()
        assert [name for name, _ in found] == ["done"]
"""


def test_a_worker_killed_while_it_waits_for_its_end_does_not_stop_the_others(tmp_path):
    """With one queue for all, a worker that died with the queue's lock left the last one waiting for good."""
    with start(END_BADLY, tmp_path) as parent:
        try:
            assert parent.wait(timeout=60) == 0
        finally:
            parent.kill()


SLEEP = """
import sys
from reproduce.executors import open_executor
from executor_tasks import sleep_in

if __name__ == "__main__":
    with open_executor("local", workers=2) as executor:
        list(executor.map(sleep_in, [sys.argv[1]] * 2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    with start(SLEEP, tmp_path) as parent:
        wait_until(lambda: len(list(tmp_path.glob("*.json"))) == 2)
        workers = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        assert all(is_running(worker["process"]) for worker in workers)
        parent.kill()
    try:
        wait_until(lambda: not any(is_running(worker["process"]) for worker in workers))
        wait_until(lambda: not any(pathlib.Path(worker["programs"]).exists() for worker in workers))
    finally:
        for worker in workers:
            if is_running(worker["process"]):
                os.kill(worker["process"], signal.SIGKILL)


WITH_A_LOCK = """
from reproduce.executors import open_executor
from executor_tasks import hold_a_lock

if __name__ == "__main__":
    with open_executor("local", workers=2) as executor:
        assert sorted(executor.map(hold_a_lock, range(4))) == [0, 1, 2, 3]
"""


def test_workers_end_in_order_and_without_a_word(tmp_path):
    """Locks, such as those of progress bars, are given back; else Python complains of leaks at the end."""
    with start(WITH_A_LOCK, tmp_path, stderr=subprocess.PIPE, text=True) as parent:
        _, said = parent.communicate(timeout=60)
    assert (parent.returncode, said) == (0, "")


def test_an_error_that_cannot_be_pickled_arrives_as_words_with_its_traceback():
    with open_executor("local", workers=2) as executor, pytest.raises(ReproduceError, match="this and that") as error:
        list(executor.map(tasks.raise_peculiar, [1]))
    assert "in raise_peculiar" in error.value.__notes__[0]


def test_a_task_that_always_kills_its_process_gets_a_sentence():
    with open_executor("local", workers=2) as executor, pytest.raises(ReproduceError, match="killed 3 times"):
        list(executor.map(tasks.die, [1]))


def test_a_killed_dask_worker_loses_nothing(tmp_path):
    pytest.importorskip("distributed")
    results = []
    with open_executor("dask", workers=2) as executor:
        pending = executor.map(tasks.square_where, [(number, str(tmp_path)) for number in range(6)])
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


def test_a_task_that_always_kills_its_dask_worker_gets_a_sentence():
    pytest.importorskip("distributed")
    with open_executor("dask", workers=1) as executor, pytest.raises(ReproduceError, match="killed 3 times"):
        list(executor.map(tasks.die, [1]))


def test_a_dask_worker_with_another_version_gets_a_sentence(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("reproduce.cluster.versions", lambda: {"epinet_eqx": "0.0.1"})
    with open_executor("dask", workers=1) as executor, pytest.raises(ReproduceError) as error:
        list(executor.map(tasks.square, [1]))
    assert "must have epinet_eqx 0.0.1, as this process has; the one on" in str(error.value)


@pytest.fixture
def dask_scheduler(tmp_path):
    """Start a scheduler and a worker as processes of their own; yield the scheduler and its address."""
    pytest.importorskip("distributed")
    told = tmp_path / "scheduler.json"
    start = [sys.executable, "-m", "dask"]
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(told)]
    here = pathlib.Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here), *sys.path])}
    quiet = {"env": environment, "stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen([*start, "scheduler", *options], **quiet) as scheduler:
        wait_until(told.exists)
        address = json.loads(told.read_text())["address"]
        with subprocess.Popen([*start, "worker", address, "--nthreads", "1", "--no-dashboard"], **quiet) as worker:
            yield scheduler, address
            worker.terminate()
            scheduler.kill()


@pytest.mark.long
def test_a_lost_dask_scheduler_gets_a_sentence_and_what_was_done_is_kept(dask_scheduler, tmp_path):
    scheduler, address = dask_scheduler
    results = []
    with pytest.raises(ReproduceError, match="scheduler was lost"), open_executor("dask", scheduler=address) as cluster:
        for result in cluster.map(tasks.sleep_if_folder, [2, str(tmp_path)]):
            results.append(result)
            scheduler.kill()
    assert results == [2]


@pytest.mark.long
def test_a_dask_scheduler_that_is_not_there_gets_a_sentence():
    pytest.importorskip("distributed")
    import dask.config

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(ReproduceError, match="No Dask scheduler answers at `--scheduler` tcp://127.0.0.1:9"),
        open_executor("dask", scheduler="tcp://127.0.0.1:9"),
    ):
        pass


def test_a_dask_scheduler_that_is_no_address_gets_a_sentence(capsys):
    pytest.importorskip("distributed")
    command = ["run", "--only", "thm1", "--tier", "smoke", "--executor", "dask", "--scheduler", "somewhere"]
    assert cli.main(command) == 2
    message = "`--scheduler` must be an address such as tcp://127.0.0.1:8786; got somewhere"
    assert message in capsys.readouterr().err


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
