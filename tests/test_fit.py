"""`fit`: blocks, history, validation, streams, ways to end early, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from epinet_eqx import attach, named_keys
from epinet_eqx.bayes import Deterministic
from epinet_eqx.epinet import Epinet, NetworkEnsemble, Reads
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import AbstractPenalty, Batch, CrossEntropy, SquaredLoss, mean_data_loss
from epinet_eqx.networks import MLP
from epinet_eqx.training import (
    AbstractCallback,
    Checkpoints,
    DataExhaustedError,
    EpistemicObjective,
    EpochBatches,
    NonFiniteLossError,
    Steps,
    TrainingInterrupted,
    UniformBatches,
    data_mesh,
    fit,
    init_state,
    train_step,
    train_steps,
)
from epinet_eqx.training._optimizer import ByContent

pytestmark = pytest.mark.once

# One optimizer and one set of sizes for most tests: they share compiled programs.
SGD = optax.sgd(0.05)
LOSS = SquaredLoss(l2=0.01)
OBJECTIVE = EpistemicObjective(LOSS, num_index_samples=2)
OPTIONS = dict(batch_size=4, num_index_samples=2, optimizer=SGD, block_size=5, progress=False)


def linear_epinet(key, num_outputs=1):
    """Return an ENN that is linear in the input and in z."""

    def linear(key):
        return MLP(3, num_outputs, (), feature_layers=(), key=key)

    base, learnable = jr.split(key)
    return Epinet(linear(base), Reads(NetworkEnsemble(linear, 4, key=learnable), "input"), (), GaussianIndex(4))


def make_data(key, size=12):
    x = jr.normal(key, (size, 3))
    return Batch.of(x, jnp.sin(x[:, 0]))


def same(first, second):
    """Return whether two trees hold bit-identical arrays."""
    return eqx.tree_equal(eqx.filter(first, eqx.is_array), eqx.filter(second, eqx.is_array))


def close(first, second):
    """Return whether two models agree up to rounding."""
    arrays = (eqx.filter(model, eqx.is_inexact_array) for model in (first, second))
    return eqx.tree_equal(*arrays, rtol=1e-4, atol=1e-5)


def test_fit_is_the_compiled_loop_in_blocks(getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    result = fit(enn, data, LOSS, num_steps=12, key=key, **OPTIONS)
    (train_key,) = named_keys(key, "train")
    state, losses = eqx.filter_jit(train_steps)(
        init_state(enn, SGD, key=train_key),
        data,
        OBJECTIVE,
        SGD,
        batches=UniformBatches(4),
        num_steps=12,
    )
    # Up to rounding, since `fit` draws the random numbers of a block in a program of its own.
    assert close(result.state.model, state.model) and int(result.state.step) == 12
    assert same(result.enn, result.state.model)
    assert np.allclose(result.history.losses, losses, rtol=1e-5)
    assert result.history.validation_losses.size == 0 and result.history.best_step is None
    # A pair is the same as the batch made from it.
    assert same(fit(enn, (data.x, data.y), LOSS, num_steps=12, key=key, **OPTIONS).state, result.state)


def test_training_goes_on_from_a_state(getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    whole = fit(enn, data, LOSS, num_steps=12, key=key, **OPTIONS)
    first = fit(enn, data, LOSS, num_steps=7, key=key, **OPTIONS)
    second = fit(first.state, data, LOSS, num_steps=5, key=key, **OPTIONS)
    assert same(second.state, whole.state)
    assert np.array_equal(np.append(first.history.losses, second.history.losses), whole.history.losses)


def test_defaults_learn_two_classes(getkey):
    x = jr.normal(getkey(), (60, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    base = MLP(2, 2, (20,), feature_layers=(0, -1), key=getkey())
    enn = attach(base, out_size=2, index_dim=3, hidden=(10,), freeze=False, key=getkey())
    enn, _, history = fit(enn, (x, y), CrossEntropy(l2=1e-4), num_steps=600, progress=False, key=getkey())
    assert history.losses.shape == (600,)
    assert history.losses[-50:].mean() < 0.5 * history.losses[:50].mean()
    outputs = jax.vmap(lambda x: enn(x, jnp.zeros(3)))(x)
    assert jnp.mean(jnp.argmax(outputs, axis=1) == y) > 0.85


def test_validation_is_the_data_loss_at_fixed_indices(getkey):
    enn, data, held_out, key = linear_epinet(getkey()), make_data(getkey()), make_data(getkey()), getkey()
    plain = fit(enn, data, LOSS, num_steps=12, key=key, **OPTIONS)
    result = fit(enn, data, LOSS, num_steps=12, validation=held_out, eval_every=3, key=key, **OPTIONS)
    # Looking changes nothing.
    assert same(result.state, plain.state) and same(result.enn, plain.enn)
    assert np.array_equal(result.history.losses, plain.history.losses)
    assert np.array_equal(result.history.validation_steps, [3, 6, 9, 12])
    (validation_key,) = named_keys(key, "validation")
    expected = mean_data_loss(LOSS, result.enn, enn.index.sample_many(2, key=validation_key), held_out)
    assert np.allclose(result.history.validation_losses[-1], expected, rtol=1e-5)
    uneven = fit(enn, data, LOSS, num_steps=12, validation=held_out, eval_every=7, key=key, **OPTIONS).history
    assert np.array_equal(uneven.validation_steps, [7, 12])
    assert np.array_equal(uneven.validation_losses[-1], result.history.validation_losses[-1])


def test_best_enn_is_kept(getkey):
    # A step size that is small, then too large: the ENN gets better, then worse.
    optimizer = optax.sgd(lambda t: jnp.where(t < 6, 0.05, 5.0))
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    options = dict(OPTIONS, optimizer=optimizer, batch_size=None, validation=data, eval_every=2)
    last = fit(enn, data, SquaredLoss(), num_steps=8, key=key, **options)
    best = fit(enn, data, SquaredLoss(), num_steps=8, keep_best=True, key=key, **options)
    assert last.history.validation_losses[-1] > last.history.validation_losses[-2]
    assert last.history.best_step == best.history.best_step == 6
    assert same(last.enn, last.state.model) and same(best.state, last.state)
    assert same(best.enn, fit(enn, data, SquaredLoss(), num_steps=6, key=key, **options).enn)


def stream(data, size=4):
    """Yield the data in order, without end."""
    start = 0
    while True:
        ids = (jnp.arange(size) + start) % len(data.y)
        yield jax.tree.map(lambda leaf, ids=ids: leaf[ids], data)
        start += size


def test_streamed_batches_are_single_steps(getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    result = fit(enn, stream(data), LOSS, num_steps=13, validation=data, eval_every=6, key=key, **OPTIONS)
    (train_key,) = named_keys(key, "train")
    state = init_state(enn, SGD, key=train_key)
    step = eqx.filter_jit(train_step)
    for batch, expected in zip(stream(data), result.history.losses, strict=False):
        state, metrics = step(state, batch, OBJECTIVE, SGD)
        assert jnp.allclose(metrics["loss"], expected, rtol=1e-5)
    assert len(result.history.losses) == int(state.step) == int(result.state.step) == 13
    assert np.array_equal(result.history.validation_steps, [6, 12, 13])

    # As many steps as there are batches.
    some = [batch for batch, _ in zip(stream(data), range(13), strict=False)]
    ended = fit(enn, some, LOSS, num_steps=None, validation=data, key=key, **OPTIONS)
    assert same(ended.state, result.state)
    assert np.array_equal(ended.history.validation_steps, [13])
    with pytest.raises(DataExhaustedError, match="must yield at least 20 batches, .* got 13") as caught:
        fit(enn, iter(some), LOSS, num_steps=20, key=key, **OPTIONS)
    assert same(caught.value.state, result.state) and len(caught.value.history.losses) == 13
    with pytest.raises(DataExhaustedError, match="must yield at least 1 batches, .* got 0"):
        fit(enn, [], LOSS, num_steps=None, key=key, **OPTIONS)


@pytest.mark.parametrize("streamed", [False, True])
def test_non_finite_loss_names_the_step_and_keeps_the_state(streamed, getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    # The loss overflows: the target is finite, its square is not.
    data = eqx.tree_at(lambda data: data.y, data, data.y.at[7].set(1e25))
    options = dict(OPTIONS, sampling=EpochBatches, batch_size=1)
    (train_key,) = named_keys(key, "train")
    order = np.ravel(EpochBatches(1).ids(Steps(12, None, jnp.array(0), 12), key=train_key))
    step = 7 if streamed else int(np.flatnonzero(order == 7)[0])
    good = None
    if step > 0:
        good = fit(enn, stream(data, 1) if streamed else data, LOSS, num_steps=step, key=key, **options)
    with pytest.raises(NonFiniteLossError, match=f"At step {step} the loss was inf. Try a smaller") as caught:
        fit(enn, stream(data, 1) if streamed else data, LOSS, num_steps=20, key=key, **options)
    error = caught.value
    assert error.step == int(error.state.step) == step and error.members == {}
    assert len(error.history.losses) == step + 1 and np.isinf(error.history.losses[-1])
    if good is not None:
        assert same(error.state, good.state)
        assert np.array_equal(error.history.losses[:-1], good.history.losses)


def test_interrupt_keeps_the_state(getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()

    def interrupted():
        for t, batch in enumerate(stream(data)):
            if t == 13:
                raise KeyboardInterrupt
            yield batch

    with pytest.raises(KeyboardInterrupt) as caught:
        fit(enn, interrupted(), LOSS, num_steps=50, key=key, **OPTIONS)
    error = caught.value
    assert isinstance(error, TrainingInterrupted)
    assert error.step == int(error.state.step) == len(error.history.losses) == 13
    assert same(error.state, fit(enn, stream(data), LOSS, num_steps=13, key=key, **OPTIONS).state)
    assert "SIGINT stopped training after step 13 of 50" in str(error)


def linear_mlp(key):
    return eqx.nn.MLP(3, 1, width_size=4, depth=1, key=key)


@pytest.mark.parametrize("make", [linear_mlp, lambda key: MLP(3, 1, (4,), key=key)])
def test_a_network_is_trained_as_the_enn_that_ignores_its_index(make, getkey):
    network, data, key = make(getkey()), make_data(getkey()), getkey()
    found = fit(network, data, LOSS, num_steps=7, validation=data, key=key, **OPTIONS)
    expected = fit(Deterministic(network), data, LOSS, num_steps=7, validation=data, key=key, **OPTIONS)
    assert type(found.model) is type(network) and same(found.model, expected.model.network)
    assert isinstance(found.enn, Deterministic)
    assert np.array_equal(found.history.losses, expected.history.losses)
    again = fit(found.state, data, LOSS, num_steps=3, key=key, **OPTIONS)
    assert same(again.model, fit(expected.state, data, LOSS, num_steps=3, key=key, **OPTIONS).model.network)
    with pytest.raises(ValueError, match="`model` must be an ENN or a network, a callable Equinox module; got list"):
        fit([network], data, LOSS, num_steps=3, key=key, **OPTIONS)


@pytest.mark.parametrize("sampling", [UniformBatches, EpochBatches])
def test_a_mesh_changes_nothing_but_rounding(sampling, getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    options = dict(OPTIONS, num_steps=7, sampling=sampling, validation=data, eval_every=3, keep_best=True)
    found = fit(enn, data, LOSS, mesh=data_mesh(), key=key, **options)
    expected = fit(enn, data, LOSS, key=key, **options)
    assert np.allclose(found.history.losses, expected.history.losses, rtol=1e-4)
    assert np.allclose(found.history.validation_losses, expected.history.validation_losses, rtol=1e-4)
    assert close(found.model, expected.model)


def test_fit_resumes_from_its_checkpoints(tmp_path, getkey):
    pytest.importorskip("orbax.checkpoint")
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    whole = fit(enn, data, LOSS, num_steps=7, checkpoints=Checkpoints(tmp_path / "whole"), key=key, **OPTIONS)
    fit(enn, data, LOSS, num_steps=4, checkpoints=Checkpoints(tmp_path / "cut"), key=key, **OPTIONS)
    heard = Heard()
    resumed = fit(
        enn,
        data,
        LOSS,
        num_steps=7,
        checkpoints=Checkpoints(tmp_path / "cut"),
        callbacks=[heard],
        log_every=1,
        key=key,
        **OPTIONS,
    )
    assert same(resumed.state, whole.state)
    assert np.array_equal(resumed.history.losses, whole.history.losses[4:])
    assert heard.steps == ["start 4", 5, 6, 7, "close"]


class Heard(AbstractCallback):
    """Notes the steps of the metrics."""

    def __init__(self):
        self.steps = []

    def start(self, step):
        self.steps.append(f"start {step}")

    def log(self, step, metrics):
        assert np.isfinite(metrics["loss"])
        self.steps.append(step)

    def close(self):
        self.steps.append("close")


def test_callbacks_hear_of_blocks_in_memory(getkey):
    enn, data, heard = linear_epinet(getkey()), make_data(getkey()), Heard()
    fit(enn, data, LOSS, num_steps=7, callbacks=[heard], log_every=3, key=getkey(), **OPTIONS)
    assert heard.steps == ["start 0", 3, 6, 7, "close"]


class Counted(AbstractPenalty):
    """A penalty that counts how often it is traced."""

    scale: jax.Array

    def __call__(self, enn, params, z):
        Counted.traces += 1
        return self.scale * jnp.sum(jnp.square(params.base.layers[0].weight))


def test_fits_of_one_shape_compile_once(getkey):
    Counted.traces = 0
    counts = []
    # Whatever the number of steps, the scalars, the data and the time of validation are.
    for num_steps, scale, eval_every in ((3, 0.0, 2), (12, 0.1, 5)):
        loss = SquaredLoss(penalty=Counted(jnp.asarray(scale)))
        options = dict(OPTIONS, validation=make_data(getkey()), eval_every=eval_every)
        fit(linear_epinet(getkey()), make_data(getkey()), loss, num_steps=num_steps, key=getkey(), **options)
        counts.append(Counted.traces)
    assert counts[0] == counts[1] > 0


def schedule(count):
    """Return a learning rate of the user's own."""
    return 0.1 / (1 + count)


OPTIMIZERS = {
    "adam": lambda: optax.adam(0.01),
    "another rate": lambda: optax.adam(0.02),
    "another default": lambda: optax.adam(0.01, eps=1e-3),
    "a rate that is an array": lambda: optax.adam(np.float32(0.01)),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9)),
    "another clip": lambda: optax.chain(optax.clip_by_global_norm(0.2), optax.sgd(0.1, momentum=0.9)),
    "schedule": lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 20)),
    "another schedule": lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 5)),
    "own schedule": lambda: optax.sgd(schedule),
    "masked": lambda: optax.masked(optax.sgd(0.1), schedule_mask),
}


def schedule_mask(params):
    """Select everything."""
    return jax.tree.map(lambda _: True, params)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equal_optimizers_share_a_program_and_others_do_not(name, getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    loss = SquaredLoss(penalty=Counted(jnp.asarray(0.1)))

    def run(optimizer):
        Counted.traces = 0
        found = fit(enn, data, loss, num_steps=4, key=key, **dict(OPTIONS, optimizer=optimizer))
        return found.state.model, Counted.traces

    expected, _ = run(OPTIMIZERS[name]())
    again, traces = run(OPTIMIZERS[name]())
    assert same(again, expected) and traces == 0
    for other in OPTIMIZERS.keys() - {name}:
        assert ByContent(OPTIMIZERS[name]()) != ByContent(OPTIMIZERS[other]()), other
    # Functions that the user writes may depend on globals, so they equal themselves only.
    one, two = (ByContent(optax.sgd(lambda count: 0.1 / (1 + count))) for _ in range(2))
    assert one != two


def test_progress_goes_to_stderr_only(getkey, capsys):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()
    fit(enn, data, LOSS, num_steps=12, validation=data, key=key, **OPTIONS)
    assert capsys.readouterr() == ("", "")
    fit(enn, data, LOSS, num_steps=12, validation=data, key=key, **dict(OPTIONS, progress=True))
    out, err = capsys.readouterr()
    assert out == ""
    assert "12/12" in err and "loss" in err and "validation" in err


@pytest.mark.usefixtures("as_user")
def test_every_streamed_batch_is_checked(getkey):
    enn, x, key = linear_epinet(getkey(), num_outputs=3), jr.normal(getkey(), (4, 3)), getkey()
    labels = np.array([0, 1, 2, 1])
    good = Batch.of(x, labels)

    def refused(message, make, kind=ValueError):
        with pytest.raises(kind, match=message):
            # The bad batch comes after the first one, and after the first block.
            batches = (good if step < 12 else make() for step in range(15))
            fit(enn, batches, CrossEntropy(), num_steps=15, key=key, **OPTIONS)

    one_label = "`y` must hold one integer label per example; got shape"
    refused(one_label, lambda: Batch.of(x, labels + 0.5))
    refused(one_label, lambda: Batch.of(x, jax.nn.one_hot(labels, 3)))
    refused(one_label, lambda: Batch.of(x, jax.nn.one_hot(labels, 3, dtype=int)))
    refused(one_label, lambda: Batch.of(x, labels[:, None]))
    refused(one_label, lambda: Batch.of(x, labels == 1))
    refused("`y` must hold integers from .* to 2147483647, .* got values from 0 to 4294967297", lambda: wide(x, labels))
    refused("`i` must hold the integer number of each example; got float32", lambda: Batch(x, labels, np.ones(4)))
    refused(
        "At step 12 the loss was nan.*a label that is no class", lambda: Batch.of(x, labels + 1), NonFiniteLossError
    )
    refused(
        "At step 12 the loss was nan.*a label that is no class", lambda: Batch.of(x, labels - 1), NonFiniteLossError
    )
    with pytest.raises(ValueError, match=r"`y` must hold 1 floating-point outputs per example; got shape \(3,\)"):
        targets = [Batch.of(x, x[:, 0]), Batch.of(x, x)]
        fit(linear_epinet(getkey()), targets, LOSS, num_steps=2, key=key, **OPTIONS)


def wide(x, labels):
    """Return a batch whose last label is 1 after it is cut to 32 bits."""
    return Batch.of(x, np.append(labels[:-1], 2**32 + 1))


@pytest.mark.usefixtures("as_user")
def test_bad_input_is_refused_before_anything_compiles(getkey):
    enn, data, key = linear_epinet(getkey()), make_data(getkey()), getkey()

    def refused(message, data=data, loss=LOSS, enn=enn, **options):
        with pytest.raises(ValueError, match=message):
            fit(enn, data, loss, **{"num_steps": 2, "key": key, **OPTIONS, **options})

    refused("`num_steps` must be a positive integer; got 0", num_steps=0)
    refused("`num_steps` must be given for data in memory; got None", num_steps=None)
    refused("`block_size` must be a positive integer; got 0", block_size=0)
    refused("`batch_size` must be a positive integer; got -1", batch_size=-1)
    refused("`num_index_samples` must be a positive integer; got 0", num_index_samples=0)
    refused("`keep_best` must be left out without `validation`; got True", keep_best=True)
    refused("`eval_every` must be left out without `validation`; got 3", eval_every=3)
    refused("`eval_every` must be a positive integer; got -3", eval_every=-3, validation=data)
    refused(r"`data` must be a `Batch` or a pair `\(x, y\)`; got", data=data.x)
    refused(r"`data` must be a `Batch` or a pair `\(x, y\)`; got tuple", data=(data.x, data.y, data.i))
    refused("`validation` must be a `Batch` or a pair", validation=[data])
    refused(r"`data` must be a tuple `\(x, y\)`, or yield a `Batch` .* yields tuple", data=[(data.x, data.y)])
    refused(r"must hold arrays with one batch size; got leading sizes \[11, 12\]", data=(data.x, data.y[:11]))
    refused("must not be empty", data=(data.x[:0], data.y[:0]))
    refused("`x of data` must be finite; got 1 non-finite of 36 values", data=(data.x.at[3, 1].set(jnp.nan), data.y))
    refused("`x of data` must be finite", data=[Batch.of(data.x.at[3, 1].set(jnp.nan), data.y)])
    refused("`y` must be finite; got 12 non-finite of 12 values", data=(data.x, data.y * jnp.inf))
    refused("`y` must be finite", validation=(data.x, data.y * jnp.nan))
    refused(r"`y` must hold 1 floating-point outputs per example; got shape \(12, 3\)", data=(data.x, data.x))
    refused(r"`x` must have shape \(3,\); got \(4,\)", data=(jnp.zeros((12, 4)), data.y))
    classifier = linear_epinet(getkey(), num_outputs=3)
    labels = jnp.arange(12) % 3
    refused(
        "`y` must hold classes from 0 to 2; got values from 1 to 3",
        enn=classifier,
        data=(data.x, labels + 1),
        loss=CrossEntropy(),
    )
    refused("`y` must hold one integer label per example", enn=classifier, loss=CrossEntropy())
    state = init_state(enn, SGD, key=key)
    refused("`mask` must be left out when training continues", enn=state, mask=state.mask)
