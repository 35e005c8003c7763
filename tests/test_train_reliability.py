"""Training at scale on machines as they are: killed, signaled, joined, out of space."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from _train_worker import read_losses, read_metrics, run

pytest.importorskip("orbax.checkpoint")

from epinet_eqx import training

pytestmark = pytest.mark.once

WORKER = str(pathlib.Path(__file__).parent / "_train_worker.py")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The environment of a helper program: a store of compiled programs, the one of this run if there is one."""
    store = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("programs")))
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": store,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def start(cache, *arguments):
    command = [sys.executable, WORKER, *map(str, arguments)]
    return subprocess.Popen(command, env=cache, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks, which are those of Unix")
@pytest.mark.parametrize(("num_kills", "seen", "drafts"), [(5, 2, 0), pytest.param(20, 3, 1, marks=pytest.mark.long)])
def test_killed_training_ends_as_if_it_had_not_been(num_kills, seen, drafts, tmp_path, cache):
    found = answer(start(cache, "kill", tmp_path, num_kills, 7))
    assert found["kills"] == num_kills
    # Kills did hit at different times, and of many some while a checkpoint was being written.
    assert found["seen"] >= seen
    assert found["drafts"] >= drafts
    expected = np.load(tmp_path / "whole" / "final.npz")
    for folder in found["rounds"]:
        final = np.load(pathlib.Path(folder) / "final.npz")
        assert final.files == expected.files
        for name in expected.files:
            np.testing.assert_array_equal(final[name], expected[name])
        assert read_metrics(folder) == read_metrics(tmp_path / "whole")


def start_two(cache, folder, options=((), ())):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = [f"--coordinator={address}", "--num-processes=2"]
    return [start(cache, "process", folder, *flags, f"--process-id={n}", *options[n]) for n in range(2)]


@pytest.mark.long
def test_processes_and_devices_give_the_same_training(tmp_path, cache):
    joined = start_two(cache, tmp_path / "joined")
    # Meanwhile, in this process.
    options = {"shard_parameters": True, "checkpoint_every": 4, "eval_every": 4, "log_every": 2}
    run(tmp_path / "four", 8, mesh=training.data_mesh(), **options)
    run(tmp_path / "one", 8, mesh=training.data_mesh(jax.devices()[:1]), **options)
    four, one = read_metrics(tmp_path / "four"), read_metrics(tmp_path / "one")
    # Only the second process was asked to stop, in the third step; both did so after the fourth, where they meet.
    for found in map(answer, joined):
        assert found["devices"] == 4
        assert found["step"] == 4
        assert "SIGTERM stopped training after step 4 of 8" in found["message"]
    stopped = read_metrics(tmp_path / "joined")
    assert [record["step"] for record in stopped] == [2, 4, 4]
    # A single process with four devices goes on where two with two devices each have stopped.
    run(tmp_path / "joined", 8, mesh=training.data_mesh(), **options)
    resumed = read_metrics(tmp_path / "joined")
    assert resumed[:3] == stopped
    for records in (resumed, one):
        for record, expected in zip(records, four, strict=True):
            assert record.keys() == expected.keys()
            np.testing.assert_allclose(list(record.values()), list(expected.values()), rtol=1e-5, atol=1e-5)
    assert len(read_losses(tmp_path / "joined")) == len(read_losses(tmp_path / "one")) == 4


def train_as_two(cache, folder, dying=None, when="never"):
    """Train in two processes, of which one may die; return how each ended, and what it said."""
    options = [[f"--die={when if number == dying else 'never'}"] for number in range(2)]
    processes = start_two(cache, folder, options)
    try:
        # A survivor ends some seconds after the timeout of 10 s; that it ends at all is what is tested.
        return [(process.communicate(timeout=300)[1], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def state_of(folder):
    """Return the arrays of the last checkpoint of a run of 8 steps."""
    state = run(folder, 8, mesh=training.data_mesh(), shard_parameters=True).state
    return jax.tree.leaves(eqx.filter(eqx.tree_at(lambda s: s.key, state, jr.key_data(state.key)), eqx.is_array))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert [code for _, code in train_as_two(cache, folder)] == [0, 0]
    return folder


@pytest.mark.long
@pytest.mark.parametrize(("dying", "when"), [(1, "step"), (0, "step"), (1, "arrays"), (0, "name")])
def test_the_death_of_a_process_ends_the_others_and_costs_no_bits(dying, when, tmp_path, cache, undisturbed):
    ended = train_as_two(cache, tmp_path, dying, when)
    assert ended[dying][1] == -signal.SIGKILL
    said, code = ended[1 - dying]
    assert code != 0
    # Without the first process JAX may abort the program before it can say more.
    ours = "Another of the 2 processes of this run died or cannot be reached. Start all of them again."
    assert ours in said or (dying == 0 and "detected fatal errors" in said), said[-3000:]
    found = sorted(path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.isdecimal())
    # The checkpoint of step 6 was not finished.
    assert found == ["000000003", "000000004"]
    assert [code for _, code in train_as_two(cache, tmp_path)] == [0, 0]
    assert read_metrics(tmp_path) == read_metrics(undisturbed)
    for array, expected in zip(state_of(tmp_path), state_of(undisturbed), strict=True):
        np.testing.assert_array_equal(np.asarray(array), np.asarray(expected))


def no_space(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("place", ["arrays", "summary", "name", "file system"])
def test_full_disk_leaves_the_last_checkpoint_whole(tmp_path, place, monkeypatch):
    resource = pytest.importorskip("resource")
    run(tmp_path, 2, checkpoint_every=2)
    stored = tmp_path / "checkpoints"
    kept = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with monkeypatch.context() as patch:

        def fill(step):
            # After the first step, whose compiled program may go to the disk.
            if step != 3:
                return
            if place == "arrays":
                patch.setattr("orbax.checkpoint.Checkpointer.save", no_space)
            elif place == "summary":
                patch.setattr(pathlib.Path, "write_text", no_space)
            elif place == "name":
                patch.setattr(pathlib.Path, "rename", no_space)
            else:
                # The system itself refuses, in the middle of the arrays.
                resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))

        try:
            with pytest.raises(
                training.CheckpointError, match="The checkpoint of step 4 could not be written"
            ) as caught:
                run(tmp_path, 6, watch=fill, checkpoint_every=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "That of step 2 is intact." in str(caught.value)
    assert {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()} == kept
    # With space again, training goes on.
    assert int(run(tmp_path, 3).state.step) == 3
