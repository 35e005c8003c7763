"""`train`: validation, checkpoints, early ends."""

import json
import os
import shutil
import signal
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from _train_worker import read_losses, read_metrics, run
from train_toys import toy_arrays, toy_network

pytest.importorskip("orbax.checkpoint")

from epinet_eqx import training
from epinet_eqx._files import seal
from epinet_eqx.data import ArrayDataset, Loader
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.training import EpochBatches

pytestmark = pytest.mark.once

OPTIMIZER = optax.sgd(0.1)


def make_state(key):
    network, statistics = toy_network(key=key())
    return training.init_state(network, OPTIMIZER, model_state=statistics, key=key())


def make_data(key, batch_size=8):
    return training.MemoryIterator(Batch.of(*toy_arrays()), EpochBatches(batch_size), key=key())


def last_scores(result):
    return {name: float(values[-1]) for name, values in result.history.validation.items()}


def assert_same_bits(one, other):
    arrays = [jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)) for tree in (one, other)]
    for a, b in zip(*arrays, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_stopped_training_goes_on_as_if_it_had_not_stopped(tmp_path, name):
    whole = run(tmp_path / "whole", 6, checkpoint_every=2, log_every=1)

    def stop(step):
        if step == 2:
            os.kill(os.getpid(), getattr(signal, name))

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(training.TrainingInterrupted, match=f"{name} stopped training after step 3 of 6") as caught:
        run(tmp_path / "cut", 6, watch=stop, log_every=1)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert caught.value.path == tmp_path / "cut" / "checkpoints" / "000000003"
    assert "run the same program again to resume" in str(caught.value)
    assert int(caught.value.state.step) == 3
    resumed = run(tmp_path / "cut", 6, checkpoint_every=2, log_every=1)
    assert_same_bits(resumed.state, whole.state)
    assert read_metrics(tmp_path / "cut") == read_metrics(tmp_path / "whole")
    assert last_scores(resumed) == last_scores(whole)
    assert len(read_losses(tmp_path / "cut")) == 6
    # A training that has ended is returned as it is.
    again = run(tmp_path / "cut", 6)
    assert_same_bits(again.state, whole.state)
    assert last_scores(again) == pytest.approx(last_scores(whole))


def grain_stream():
    grain = pytest.importorskip("grain")
    x, y = toy_arrays()
    elements = [{"x": x[n], "y": y[n], "i": np.int32(n)} for n in range(len(y))]
    batches = grain.MapDataset.source(elements).shuffle(seed=3).repeat().batch(8)
    return iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))


def loader_stream():
    x, y = toy_arrays()
    source = ArrayDataset(x, y, np.arange(len(y), dtype=np.int32), 3)
    return Loader(source, batch_size=8, key=jax.random.key(3))


@pytest.mark.parametrize("make_stream", [grain_stream, loader_stream])
def test_pipelines_go_on_where_they_were(tmp_path, make_stream, getkey):
    network, statistics = toy_network(key=getkey())
    key = getkey()

    def go(folder, num_steps):
        state = training.init_state(network, OPTIMIZER, model_state=statistics, key=key)
        objective = training.StatefulObjective(CrossEntropy())
        options = {"checkpoints": training.Checkpoints(tmp_path / folder), "progress": False}
        return training.train(
            state, make_stream(), objective, optimizer=OPTIMIZER, num_steps=num_steps, **options
        ).state

    whole = go("whole", 5)
    go("cut", 2)
    assert_same_bits(go("cut", 5), whole)


def test_latest_and_best_checkpoints_stay(tmp_path, getkey):
    checkpoints = training.Checkpoints(tmp_path, keep_last=2, keep_best=1, metric="accuracy", mode="max")
    state = make_state(getkey)
    assert checkpoints.latest_step() is None
    assert checkpoints.best_step() is None
    for step, metrics in enumerate(({"accuracy": 0.1}, {"accuracy": 0.9}, None, {"accuracy": float("nan")}, None)):
        now = eqx.tree_at(lambda state: state.step, state, np.array(step, dtype=np.int32))
        checkpoints.save(training.place(now, training.data_mesh()), make_data(getkey), metrics=metrics)
    assert checkpoints.steps() == [1, 3, 4]
    assert checkpoints.best_step() == 1
    assert checkpoints.metrics(1) == {"accuracy": 0.9}
    assert np.isnan(checkpoints.metrics(3)["accuracy"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000001", "000000003", "000000004"]
    restored = checkpoints.restore(state, step=checkpoints.best_step())
    assert int(restored.step) == 1
    assert_same_bits(restored.model, state.model)
    np.testing.assert_array_equal(jax.random.key_data(restored.key), jax.random.key_data(state.key))
    # The same step again takes the place of the old one.
    checkpoints.save(training.place(restored, training.data_mesh()), metrics={"accuracy": 0.0})
    assert checkpoints.metrics(1) == {"accuracy": 0.0}


def test_checkpoints_of_empty_arrays(tmp_path, getkey):
    # A network whose output is empty, as `headless` makes it, and something to train.
    model = {"empty": jnp.zeros((0, 3)), "full": jnp.arange(3.0)}
    state = training.place(training.init_state(model, OPTIMIZER, key=getkey()), training.data_mesh())
    checkpoints = training.Checkpoints(tmp_path)
    checkpoints.save(state)
    assert_same_bits(checkpoints.restore(state).model, state.model)


def test_checkpoints_that_do_not_fit(tmp_path, getkey, as_user):
    checkpoints = training.Checkpoints(tmp_path)
    state, mesh = make_state(getkey), training.data_mesh()
    checkpoints.save(training.place(state, mesh), make_data(getkey))
    wider, statistics = toy_network(width=9, key=getkey())
    other = training.init_state(wider, OPTIMIZER, model_state=statistics, key=getkey())
    with pytest.raises(ValueError, match=r"model\.first\.weight is float32\[8, 4\], not float32\[9, 4\]"):
        checkpoints.restore(other)
    with pytest.raises(ValueError, match=r"`step` must be one of \[0\] in .*; got 7"):
        checkpoints.restore(state, step=7)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.suffix != ".json":
            path.write_bytes(b"")
    with pytest.raises(training.CheckpointError, match="cannot be read"):
        checkpoints.restore(state)
    (tmp_path / "000000000" / "checkpoint.json").write_text("{")
    with pytest.raises(training.CheckpointError, match="'.*000000000' cannot be read"):
        checkpoints.metrics(0)


def flip(path, position, bit):
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def test_flipped_bits_are_seen(tmp_path, getkey):
    state = make_state(getkey)
    checkpoints = training.Checkpoints(tmp_path)
    folder = checkpoints.save(state, make_data(getkey), metrics={"loss": 0.5})
    rng, files = np.random.default_rng(3), sorted(path for path in folder.rglob("*") if path.is_file())
    for number in range(120):
        path = files[number % len(files)]
        position, bit = int(rng.integers(path.stat().st_size)), int(rng.integers(8))
        flip(path, position, bit)
        with pytest.raises((training.CheckpointError, ValueError)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            training.Checkpoints(tmp_path).restore(state)
        with pytest.raises((training.CheckpointError, ValueError)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            training.Checkpoints(tmp_path).restore(state, step=0)
        flip(path, position, bit)
    assert_same_bits(checkpoints.restore(state), state)


def test_checkpoints_of_older_versions_are_read(tmp_path, getkey):
    state = make_state(getkey)
    path = training.Checkpoints(tmp_path).save(state, make_data(getkey)) / "checkpoint.json"
    new = ("checksum", "sums", "identity")
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name not in new})
    )
    with pytest.warns(UserWarning, match="is of an older version and has no checksums"):
        assert_same_bits(training.Checkpoints(tmp_path).restore(state, make_data(getkey)), state)


def test_what_is_not_whole_is_passed_over(tmp_path):
    whole = run(tmp_path / "whole", 6, checkpoint_every=2)
    run(tmp_path / "cut", 4, checkpoint_every=2)
    folder = tmp_path / "cut" / "checkpoints"
    (folder / "000000002" / "checkpoint.json").unlink()
    (folder / "99").write_text("foreign")
    (folder / "000000077").mkdir()
    (folder / ".writing-000000005" / "arrays").mkdir(parents=True)
    (folder / ".deleting-000000001").write_text("")
    shutil.copytree(folder / "000000004", folder / "000000005")
    data = max((folder / "000000005" / "arrays").rglob("d/*"), key=lambda path: path.stat().st_size)
    summary = json.loads((folder / "000000005" / "checkpoint.json").read_text())
    summary = {name: value for name, value in summary.items() if name != "checksum"} | {"step": 5}
    (folder / "000000005" / "checkpoint.json").write_text(json.dumps(seal(summary)))
    flip(data, data.stat().st_size // 2, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resumed = run(tmp_path / "cut", 6, checkpoint_every=2)
    said = [str(warning.message) for warning in caught if "is skipped" in str(warning.message)]
    assert [sum(f"{name}' is skipped" in text for text in said) for name in ("2", "99", "77", "5")] == [1, 1, 1, 1]
    assert len(said) == 4
    assert_same_bits(resumed.state, whole.state)
    assert not list(folder.glob(".*"))
    assert (folder / "000000006").is_dir() and (folder / "000000004").is_dir()


def test_training_does_not_start_anew_over_damaged_checkpoints(tmp_path):
    run(tmp_path, 2)
    (tmp_path / "checkpoints" / "000000002" / "checkpoint.json").write_text("{")
    lost = pytest.raises(training.CheckpointError, match="no intact checkpoint .* Move its content away")
    with lost, pytest.warns(UserWarning, match="000000002' is skipped"):
        run(tmp_path, 4)


def test_checkpoints_of_another_run_are_refused(tmp_path, getkey):
    state, data_key, batch = make_state(getkey), getkey(), Batch.of(*toy_arrays())
    checkpoints = training.Checkpoints(tmp_path)
    checkpoints.save(state, training.MemoryIterator(batch, EpochBatches(8), key=data_key))
    other = eqx.tree_at(lambda state: state.key, state, getkey())
    changed = eqx.tree_at(lambda batch: batch.x, batch, batch.x + 1)
    for like, data, message in (
        (other, training.MemoryIterator(batch, EpochBatches(8), key=data_key), "got others: key was"),
        (state, training.MemoryIterator(batch, EpochBatches(4), key=data_key), "got others: batch_size was 8 and is 4"),
        (state, training.MemoryIterator(batch, EpochBatches(8), key=getkey()), "got others: order was"),
        (state, training.MemoryIterator(changed, EpochBatches(8), key=data_key), "got others: examples was"),
    ):
        with pytest.raises(ValueError, match=message):
            checkpoints.restore(like, data)
        checkpoints.restore(like, data, allow_changes=True)
        checkpoints.restore(like)


def test_positions_of_several_processes(tmp_path, getkey):
    checkpoints = training.Checkpoints(tmp_path)
    state, data = make_state(getkey), make_data(getkey)
    path = checkpoints.save(state, data) / "checkpoint.json"
    summary = json.loads(path.read_text())
    assert summary["data"] == [{"step": 0}]
    del summary["checksum"]
    path.write_text(json.dumps(seal({**summary, "data": [{"step": 3}, {"step": 3}]})))
    checkpoints.restore(state, data)
    assert data.get_state() == {"step": 3}
    path.write_text(json.dumps(seal({**summary, "data": [{"step": 3}, {"step": 4}]})))
    with pytest.raises(ValueError, match="`data` must be the stream of a run with as many processes"):
        checkpoints.restore(state, data)


def test_evaluation_is_the_mean_over_examples(getkey):
    network, statistics = toy_network(key=getkey())
    objective, key, mesh = training.StatefulObjective(CrossEntropy()), getkey(), training.data_mesh()
    batch = Batch.of(*toy_arrays(23))
    expected = eqx.filter_jit(objective.evaluate)(network, statistics, batch, key=key)
    parts = [jax.tree.map(lambda leaf, s=s: leaf[s : s + 10], batch) for s in (0, 10, 20)]
    evaluate = training.make_evaluation(objective.evaluate, lambda: parts, mesh, key=key)
    found = evaluate(*training.place((network, statistics), mesh))
    assert found == pytest.approx({name: float(np.mean(value)) for name, value in expected.items()}, abs=1e-6)
    with pytest.raises(ValueError, match="`validation` must yield its largest batch first; got 10 examples after"):
        training.make_evaluation(objective.evaluate, lambda: parts[::-1], mesh, key=key)(network, statistics)
    with pytest.raises(ValueError, match="`validation` must yield at least one batch; got none"):
        training.make_evaluation(objective.evaluate, lambda: (), mesh, key=key)(network, statistics)


class Recorder(training.AbstractCallback):
    def __init__(self):
        self.heard = []

    def start(self, step):
        self.heard.append(("start", step))

    def log(self, step, metrics):
        self.heard.append((step, set(metrics)))

    def close(self):
        self.heard.append("close")


def train(key, data, **options):
    objective = training.StatefulObjective(CrossEntropy())
    return training.train(make_state(key), data, objective, optimizer=OPTIMIZER, **options)


def test_early_ends_close_callbacks_and_keep_the_state(getkey):
    batches = [next(make_data(getkey)) for _ in range(5)]
    recorder = Recorder()
    with pytest.raises(training.DataExhaustedError, match="`data` must yield at least 9 batches, .* got 5") as ended:
        train(getkey, iter(batches), num_steps=9, log_every=2, callbacks=[recorder], progress=False)
    assert int(ended.value.state.step) == 5
    names = {"loss", "gradient_norm", "accuracy", "examples_per_second"}
    assert recorder.heard[0] == ("start", 0)
    assert [entry[0] for entry in recorder.heard[1:-1]] == [2, 4]
    assert recorder.heard[-2] == (4, names)
    assert recorder.heard[-1] == "close"
    batches[2]["x"] = np.full_like(batches[2]["x"], np.nan)
    recorder = Recorder()
    with pytest.raises(training.NonFiniteLossError, match="At step 2 the loss was nan") as diverged:
        train(getkey, iter(batches), num_steps=5, callbacks=[recorder], progress=False)
    assert diverged.value.step == 2
    assert recorder.heard[-1] == "close"
    assert np.all(np.isfinite(diverged.value.state.model.first.weight))


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("held_out", [False, True])
def test_every_batch_is_checked(held_out, getkey):
    x, y = toy_arrays(8)
    numbers = np.arange(8)

    def refused(message, bad, i=numbers, kind=ValueError):
        good, other = {"x": x, "y": y, "i": numbers}, {"x": x, "y": bad, "i": i}
        options = {"validation": lambda: iter([good, other]), "eval_every": 1} if held_out else {}
        with pytest.raises(kind, match=message):
            train(getkey, iter([good, good, good if held_out else other]), num_steps=3, progress=False, **options)

    one_label = "`y` must hold one integer label per example; got shape"
    refused(one_label, y + 0.5)
    refused(one_label, np.where(y == 1, np.nan, y))
    refused(one_label, np.eye(3, dtype=np.int32)[y])
    refused(one_label, y[:, None])
    refused("`y` must hold integers from .*; got values from 0 to 4294967297", np.append(y[:-1], 2**32 + 1))
    refused("`i` must hold integers from .*; got values from 4294967296 to 4294967303", y, numbers + 2**32)
    refused("`i` must hold the integer number of each example; got float64", y, numbers + 0.5)
    for shift, found in ((1, "from 1 to 3"), (-1, "from -1 to 1")):
        if held_out:
            refused(f"`validation` must yield labels that are classes of the model; .* are {found}", y + shift)
        else:
            refused("At step 2 the loss was nan.*a label that is no class", y + shift, kind=training.NonFiniteLossError)


@pytest.mark.usefixtures("as_user")
def test_held_out_labels_of_a_small_type(getkey):
    network, statistics = toy_network(num_classes=300, key=getkey())
    x, y = toy_arrays(8)
    evaluate = eqx.filter_jit(training.StatefulObjective(CrossEntropy()).evaluate)
    key = getkey()
    expected = evaluate(network, statistics, Batch.of(x, y), key=key)
    found = evaluate(network, statistics, Batch.of(x, y.astype(np.uint8)), key=key)
    for name, value in expected.items():
        np.testing.assert_array_equal(value, found[name])
    assert set(found) == {"loss", "log_loss", "accuracy"}


def test_bar_counts_steps(getkey, capsys):
    result = train(getkey, make_data(getkey), num_steps=3, log_every=1)
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "step/s" in shown
    assert "loss" in shown
    assert result.history.validation == {} and result.history.best_step is None


def test_bad_options(tmp_path, getkey, as_user):
    with pytest.raises(ValueError, match="`eval_every` must be left out without `validation`; got 3"):
        train(getkey, make_data(getkey), num_steps=3, eval_every=3)
    with pytest.raises(ValueError, match="`checkpoint_every` must be left out without `checkpoints`; got 3"):
        train(getkey, make_data(getkey), num_steps=3, checkpoint_every=3)
    with pytest.raises(ValueError, match="`num_steps` must be a positive integer; got 0"):
        train(getkey, make_data(getkey), num_steps=0)
    with pytest.raises(ValueError, match="`data` must have `get_state` and `set_state` for checkpoints; got list_iter"):
        train(getkey, iter([]), num_steps=3, checkpoints=training.Checkpoints(tmp_path))
    with pytest.raises(ValueError, match="`mode` must be 'min' or 'max'; got 'best'"):
        training.Checkpoints(tmp_path, mode="best")


def test_missing_orbax_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r"`orbax` is needed here; .*epinet_eqx\[train\]"):
        training.Checkpoints(tmp_path)
