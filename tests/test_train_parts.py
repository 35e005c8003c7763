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
    DataIterator,
    EpochBatches,
    JsonlMetrics,
    MemoryIterator,
    TensorBoard,
    WeightsAndBiases,
    add_flags,
    initialize,
    initialize_from,
)
from epinet_eqx.training._processes import StopRequest


def test_memory_iterator_has_the_order_of_epoch_batches(getkey):
    x, y = toy_arrays(10)
    key = getkey()
    data = MemoryIterator(Batch.of(x, y), EpochBatches(4), key=key)
    assert isinstance(data, DataIterator)
    expected = EpochBatches(4).ids(10, None, jnp.array(0, dtype=jnp.int32), 8, key=key)
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
    monkeypatch.setattr(jax.distributed, "initialize", lambda *args: calls.append(args))
    parser = argparse.ArgumentParser()
    add_flags(parser)
    initialize_from(parser.parse_args([]))
    assert calls == []
    initialize_from(parser.parse_args(["--distributed"]))
    initialize_from(parser.parse_args(["--coordinator=host:1", "--num-processes=2", "--process-id=1"]))
    assert calls == [(), ("host:1", 2, 1)]
    with pytest.raises(ValueError, match="`process_id` must be given"):
        initialize("host:1", 2)
    with pytest.raises(ValueError, match="`process_id` must be from 0 to 1; got 2"):
        initialize("host:1", 2, 2)
    with pytest.raises(ValueError, match="`detect` must be false"):
        initialize("host:1", detect=True)


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
