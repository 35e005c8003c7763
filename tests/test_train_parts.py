"""Data in memory, callbacks, flags, signals: the small parts of training."""

import argparse
import json
import signal
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from train_toys import toy_arrays

from epinet_eqx.losses import Batch
from epinet_eqx.training import (
    CheckpointError,
    DataIterator,
    EpochBatches,
    JsonlMetrics,
    MemoryIterator,
    ProcessLostError,
    Steps,
    TensorBoard,
    WeightsAndBiases,
    add_flags,
    initialize,
    initialize_from,
)
from epinet_eqx.training._processes import StopRequest, report_lost_process


def test_memory_iterator_has_the_order_of_epoch_batches(getkey):
    x, y = toy_arrays(10)
    key = getkey()
    data = MemoryIterator(Batch.of(x, y), EpochBatches(4), key=key)
    assert isinstance(data, DataIterator)
    expected = EpochBatches(4).ids(Steps(10, None, jnp.array(0, dtype=jnp.int32), 8), key=key)
    batches = [next(data) for _ in range(8)]
    np.testing.assert_array_equal([batch["i"] for batch in batches], expected)
    np.testing.assert_array_equal(batches[3]["x"], x[np.asarray(expected[3])])
    other = MemoryIterator(Batch.of(x, y), EpochBatches(4), key=key)
    other.set_state(json.loads(json.dumps({"step": 5})))
    np.testing.assert_array_equal(next(other)["i"], expected[5])
    assert other.get_state() == {"step": 6}


def test_processes_share_one_global_batch(getkey, monkeypatch):
    key, data = getkey(), Batch.of(*toy_arrays(10))
    whole = next(MemoryIterator(data, EpochBatches(6), key=key))["i"]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    parts = []
    for process in range(2):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        parts.append(next(MemoryIterator(data, EpochBatches(6), key=key))["i"])
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(whole))
    with pytest.raises(ValueError, match="`batch_size` must be a multiple of the number of processes, 2; got 5."):
        MemoryIterator(data, EpochBatches(5), key=key)


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_resumed_metrics_are_those_of_one_run(tmp_path):
    path = tmp_path / "logs" / "metrics.jsonl"
    metrics = JsonlMetrics(path)
    metrics.start(0)
    for step in (1, 2, 3):
        metrics.log(step, {"loss": float(step)})
    metrics.close()
    # A kill in the middle of a line.
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    again = JsonlMetrics(path)
    again.start(2)
    again.log(3, {"loss": float("nan")})
    again.close()
    assert read_lines(path) == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 2.0}, {"step": 3, "loss": None}]
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.jsonl"]


@pytest.mark.parametrize(
    "content", ["notes\nof mine\n", "{}\n", "[1]\n", '{"step": 1}\n{"loss": 2}\n', '{"step": "x"}\n']
)
def test_a_file_of_something_else_is_not_overwritten(content, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match="`path` must be a new file, or one that `JsonlMetrics` wrote; line . of"):
        JsonlMetrics(path).start(0)
    assert path.read_text() == content
    assert list(tmp_path.iterdir()) == [path]


class Calls(list):
    """Records the calls of a package that is not there."""

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.append((name, args, kwargs))
            return self

        return call


@pytest.mark.parametrize(
    ("package", "make", "expected"),
    [
        (
            "tensorboardX",
            lambda: TensorBoard("folder"),
            [
                ("SummaryWriter", ("folder",), {"purge_step": 3}),
                ("add_scalar", ("loss", 0.5, 4), {}),
                ("close", (), {}),
            ],
        ),
        (
            "wandb",
            lambda: WeightsAndBiases("epinets", id="run", config={"depth": 50}),
            [
                ("init", (), {"project": "epinets", "id": "run", "config": {"depth": 50}, "resume": "allow"}),
                ("log", ({"loss": 0.5},), {"step": 4}),
                ("finish", (), {}),
            ],
        ),
    ],
)
def test_optional_trackers(package, make, expected, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"needs the package {package}: pip install {package}"):
        make()
    calls = Calls()
    fake = types.ModuleType(package)
    fake.SummaryWriter, fake.init = calls.SummaryWriter, calls.init
    monkeypatch.setitem(sys.modules, package, fake)
    tracker = make()
    tracker.start(2)
    tracker.log(4, {"loss": 0.5})
    tracker.close()
    assert calls == expected


def test_flags_reach_jax(monkeypatch):
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *args, **named: calls.append((*args, named)))
    parser = argparse.ArgumentParser()
    add_flags(parser)
    initialize_from(parser.parse_args([]))
    assert calls == []
    initialize_from(parser.parse_args(["--distributed"]))
    initialize_from(parser.parse_args(["--coordinator=host:1", "--num-processes=2", "--process-id=1"]))
    initialize("host:1", 2, 1, timeout=7)
    default, short = {"heartbeat_timeout_seconds": 30}, {"heartbeat_timeout_seconds": 7}
    assert calls == [(default,), ("host:1", 2, 1, default), ("host:1", 2, 1, short)]
    with pytest.raises(ValueError, match="`timeout` must be a positive integer; got 0"):
        initialize(timeout=0)
    with pytest.raises(ValueError, match="`process_id` must be given"):
        initialize("host:1", 2)
    with pytest.raises(ValueError, match="`process_id` must be from 0 to 1; got 2"):
        initialize("host:1", 2, 2)
    with pytest.raises(ValueError, match="`detect` must be false"):
        initialize("host:1", detect=True)


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("UNKNOWN: Gloo AllGather failed: Connection reset by peer", True),
        ("UNAVAILABLE: Task 1 heartbeat timeout", True),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes", False),
    ],
)
def test_a_lost_process_is_reported_with_advice(said, lost, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    expected = ProcessLostError if lost else jax.errors.JaxRuntimeError
    with pytest.raises(expected) as caught, report_lost_process("Start all of them again."):
        raise jax.errors.JaxRuntimeError(f"{said}\nmore")
    sentence = "Another of the 2 processes of this run died or cannot be reached. Start all of them again. Process 0"
    assert str(caught.value) == (f"{sentence} noticed it by: {said}" if lost else f"{said}\nmore")
    # A checkpoint that could not be written for this reason says so, too.
    with pytest.raises(ProcessLostError if lost else CheckpointError), report_lost_process(""):
        raise CheckpointError("not written") from caught.value.__cause__ or caught.value
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    with pytest.raises(jax.errors.JaxRuntimeError), report_lost_process(""):
        raise jax.errors.JaxRuntimeError(said)


def test_second_interrupt_does_not_wait():
    # A shell starts background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with StopRequest() as request:
        assert request.agreed() is None
        signal.raise_signal(signal.SIGINT)
        assert request.agreed() == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_processes_stop_where_they_meet(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda flag: np.array([flag, signal.SIGTERM]))
    with StopRequest() as request:
        # This process has received nothing, the other has.
        assert not request.is_urgent
        assert request.agreed() == "SIGTERM"
