"""Bad labels and NaN are refused wherever batches come from: memory, streams, Grain, meshes, stacks, held-out data."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
import pytest
from train_toys import toy_arrays, toy_network

from epinet_eqx import training
from epinet_eqx.data import ArrayDataset, Loader
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.training import NonFiniteLossError

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("as_user")]

X, Y = toy_arrays(8)
NUMBERS = np.arange(8)
OPTIMIZER = optax.sgd(0.1)

ONE_LABEL = "`y` must hold one integer label per example; got shape"
WIDE = "must hold integers from .*; got values from 0 to 4294967297"
NO_CLASS = "At step 2 the loss was nan.*a label that is no class"

# Inputs and labels, and the sentences for a stream of training batches, for held-out batches, and for memory.
MASKED = "must have no mask"
BAD = {
    "masked inputs": (np.ma.masked_array(X, mask=X > 0), Y, MASKED, MASKED, MASKED),
    "masked labels": (X, np.ma.masked_array(Y, mask=Y > 1), MASKED, MASKED, MASKED),
    "float labels": (X, Y + 0.5, ONE_LABEL, ONE_LABEL, ONE_LABEL),
    "NaN among labels": (X, np.where(Y == 1, np.nan, Y), ONE_LABEL, ONE_LABEL, ONE_LABEL),
    "one-hot labels": (X, np.eye(3, dtype=np.int32)[Y], ONE_LABEL, ONE_LABEL, ONE_LABEL),
    "wide labels": (X, np.append(Y[:-1], 2**32 + 1), WIDE, WIDE, WIDE),
    "labels above": (X, Y + 1, NO_CLASS, "`validation` must yield labels that are classes", "classes from 0 to 2"),
    "labels below": (X, Y - 1, NO_CLASS, "`validation` must yield labels that are classes", "classes from 0 to 2"),
    "NaN among inputs": (
        np.where(X > 0, np.nan, X).astype(np.float32),
        Y,
        "At step 2 the loss was nan",
        "`validation` must yield finite inputs and targets.* whose .*loss is NaN",
        "must be finite; got",
    ),
}
every_bad = pytest.mark.parametrize("bad", BAD)
every_mesh = pytest.mark.parametrize("num_devices", [None, 4])


def mesh_of(num_devices):
    return None if num_devices is None else training.data_mesh(jax.devices()[:num_devices])


def parts(x, y):
    return {"x": x, "y": y, "i": NUMBERS}


def train(getkey, stream, **options):
    network, statistics = toy_network(key=getkey())
    state = training.init_state(network, OPTIMIZER, model_state=statistics, key=getkey())
    objective = training.StatefulObjective(CrossEntropy())
    return training.train(state, stream, objective, optimizer=OPTIMIZER, num_steps=4, progress=False, **options)


@every_bad
@every_mesh
def test_streams_of_train(bad, num_devices, getkey):
    x, y, message, _, _ = BAD[bad]
    stream = (parts(x, y) if step == 2 else parts(X, Y) for step in range(4))
    with pytest.raises((ValueError, NonFiniteLossError), match=message):
        train(getkey, stream, mesh=mesh_of(num_devices))


@every_bad
@every_mesh
def test_held_out_batches_of_train(bad, num_devices, getkey):
    x, y, _, message, _ = BAD[bad]
    stream = (parts(X, Y) for _ in range(4))
    with pytest.raises(ValueError, match=message):
        train(
            getkey, stream, mesh=mesh_of(num_devices), eval_every=1, validation=lambda: iter([parts(X, Y), parts(x, y)])
        )


@every_bad
def test_streams_of_grain(bad, getkey):
    grain = pytest.importorskip("grain")
    x, y, message, _, _ = BAD[bad]
    elements = [{"x": X[n], "y": Y[n], "i": n} for n in range(8)] * 2
    elements += [{"x": x[n], "y": y[n], "i": n} for n in range(8)]
    batches = grain.MapDataset.source(elements).batch(8)
    stream = iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))
    if bad.startswith("masked"):
        # Grain stacks what it gets, without masks: it must be refused before.
        pytest.skip("Grain has no masks")
    if bad in ("NaN among labels", "float labels"):
        # Grain stacks what it gets: these labels are floats.
        assert np.asarray(batches[2]["y"]).dtype == np.float64
    with pytest.raises((ValueError, NonFiniteLossError), match=message):
        train(getkey, stream)


@every_bad
def test_data_sets_of_loaders(bad, getkey):
    x, y, *_ = BAD[bad]
    refused = (
        f"{MASKED}|must hold labels from 0 to 2|must hold a vector of integers as labels|At step . the loss was nan"
    )
    with pytest.raises((ValueError, NonFiniteLossError), match=refused):
        train(getkey, Loader(ArrayDataset(x, y, num_classes=3), batch_size=8, key=getkey()))


def fit(getkey, data, **options):
    return training.fit(
        MLP(4, 3, (5,), key=getkey()),
        data,
        CrossEntropy(),
        num_steps=4,
        batch_size=4,
        optimizer=OPTIMIZER,
        progress=False,
        key=getkey(),
        **options,
    )


@every_bad
@every_mesh
def test_data_and_validation_of_fit(bad, num_devices, getkey):
    x, y, *_, message = BAD[bad]
    mesh = mesh_of(num_devices)
    with pytest.raises(ValueError, match=message):
        fit(getkey, (x, y), mesh=mesh)
    with pytest.raises(ValueError, match=message):
        fit(getkey, (X, Y), validation=(x, y), mesh=mesh)


@every_bad
def test_streams_of_fit_on_a_mesh(bad, getkey):
    x, y, message, _, _ = BAD[bad]
    stream = (Batch(x, y, NUMBERS) if step == 2 else Batch(X, Y, NUMBERS) for step in range(4))
    with pytest.raises((ValueError, NonFiniteLossError), match=message):
        fit(getkey, stream, mesh=mesh_of(4))


@every_bad
@pytest.mark.parametrize("data_axis", [None, 0])
def test_data_and_validation_of_fit_many(bad, data_axis, getkey):
    x, y, *_, message = BAD[bad]
    networks = eqx.filter_vmap(lambda key: MLP(4, 3, (5,), key=key))(jr.split(getkey(), 2))
    good = (X, Y)
    if data_axis == 0:
        good = (np.stack([X, X]), np.stack([Y, Y]))
        # The second member's are bad.
        stack = np.ma.stack if bad.startswith("masked") else np.stack
        x, y = stack([X, x]), stack([Y, y]) if y.ndim == 1 else stack([y, y])

    def fit_many(data, **options):
        options |= {"num_steps": 2, "batch_size": 4, "optimizer": OPTIMIZER, "progress": False}
        return training.fit_many(networks, data, CrossEntropy(), data_axis=data_axis, key=getkey(), **options)

    with pytest.raises(ValueError, match=message):
        fit_many((x, y))
    with pytest.raises(ValueError, match=message):
        fit_many(good, validation=(x, y))
