"""Options of `fit` for people: data that grow, patience, metrics in files and functions, a folder to resume from."""

import csv

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from epinet_eqx.epinet import attach
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.training import CsvMetrics, fit

pytestmark = pytest.mark.once

RNG = np.random.Generator(np.random.Philox(key=5))
X, Y = RNG.normal(size=(40, 3)).astype(np.float32), RNG.integers(0, 2, 40)
LOSS = CrossEntropy(l2=1e-4)
NETWORK = MLP(3, 2, (4,), key=jr.key(0))
ENN = attach(NETWORK, example=X[0], index_dim=2, hidden=(4,), key=jr.key(1))


def run(length, **options):
    """Train on the first examples."""
    options = {"num_steps": 6, "batch_size": 5, "block_size": 3, "progress": False, **options}
    return fit(ENN, (X[:length], Y[:length]), LOSS, **options, key=jr.key(2))


def test_data_that_grow_compile_nothing_and_train_as_without_capacity(caplog):
    expected = run(21)
    run(20, capacity=40)
    with jax.log_compiles():
        found = run(21, capacity=40)
    programs = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Compiling")]
    assert not programs
    np.testing.assert_array_equal(found.history.losses, expected.history.losses)


def test_patience_stops_and_returns_the_best_model():
    # Labels that are wrong on the held-out data: each step makes them worse.
    options = {"num_steps": 600, "eval_every": 2, "patience": 3, "keep_best": True, "validation": (X, 1 - Y)}
    options |= {"optimizer": optax.adam(0.1), "batch_size": None, "progress": False}
    result = fit(ENN, (X, Y), LOSS, **options, key=jr.key(2))
    steps, losses = result.history.validation_steps, result.history.validation_losses
    assert steps[-1] < 600 and len(result.history.losses) == steps[-1] == result.state.step
    assert np.argmin(losses) == len(losses) - 4 and result.history.best_step == steps[-4]


def test_metrics_go_to_functions_and_tables(tmp_path):
    seen = []
    path = tmp_path / "metrics.csv"
    run(40, callbacks=lambda step, metrics: seen.append((step, metrics["loss"])), log_every=2)
    result = run(40, callbacks=[CsvMetrics(path)], log_every=2)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    losses = {int(row["step"]): float(row["value"]) for row in rows if row["metric"] == "loss"}
    assert losses == dict(seen) and [*losses] == [2, 4, 6]
    np.testing.assert_allclose([*losses.values()], result.history.losses[1::2], rtol=1e-6)
    # A run that resumes after step 4 replaces what came later; half a row is dropped.
    with path.open("a") as file:
        file.write("8,lo")
    table = CsvMetrics(path)
    table.start(4)
    table.log(5, {"loss": 0.5})
    table.close()
    rows = csv.DictReader(path.read_text().splitlines())
    assert [row["step"] for row in rows if row["metric"] == "loss"] == ["2", "4", "5"]
    other = tmp_path / "other.csv"
    for text in ("a,b\n1,2\n", "notes"):
        other.write_text(text)
        with pytest.raises(ValueError, match="`path` must be a new file, or one that `CsvMetrics` wrote; "):
            CsvMetrics(other).start(0)
        assert other.read_text() == text


def test_a_folder_is_enough_to_resume(tmp_path):
    pytest.importorskip("orbax.checkpoint")
    expected = run(40).enn
    run(40, num_steps=3, checkpoints=tmp_path / "run")
    found = run(40, checkpoints=tmp_path / "run").enn
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert not isinstance(one, jax.Array) or jnp.array_equal(one, other)


@pytest.mark.usefixtures("as_user")
def test_options_that_cannot_be_are_named():
    cases = [
        ({"capacity": 30}, "`capacity` must be at least the number of examples, 40; got 30."),
        ({"capacity": 50, "batch_size": None}, "`capacity` must be left out unless data in memory"),
        ({"patience": 2}, "`patience` must be left out without `validation`; got 2."),
        ({"patience": 0, "validation": (X, Y)}, "`patience` must be a positive integer; got 0."),
        ({"callbacks": [3]}, "`callbacks\\[0\\]` must be a callback"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            run(40, **options)
