"""Steps, compiled loops, batches and masks of training."""

import functools as ft
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from epinet_eqx import AbstractENN, attach, named_keys, trainable_mask
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import Epinet, NetworkEnsemble, Reads
from epinet_eqx.indices import AbstractIndex, GaussianIndex, KeyIndex, ParticleIndex
from epinet_eqx.losses import AbstractPenalty, Batch, BernoulliBootstrap, CrossEntropy, SquaredLoss, mean_loss
from epinet_eqx.networks import MLP
from epinet_eqx.training import (
    EpistemicObjective,
    EpochBatches,
    Steps,
    UniformBatches,
    init_state,
    train_step,
    train_steps,
)

pytestmark = pytest.mark.once

SGD = optax.sgd(0.05)


def linear_epinet(key, index_dim=4):
    """Return the linear-Gaussian epinet of Section 4.3 on three inputs, with biases."""

    def linear(key):
        return MLP(3, 1, (), feature_layers=(), key=key)

    base, learnable, prior = jr.split(key, 3)
    learned = Reads(NetworkEnsemble(linear, index_dim, key=learnable), "input")
    fixed = Prior(Reads(NetworkEnsemble(linear, index_dim, key=prior), "input"), 0.8)
    return Epinet(linear(base), learned, (fixed,), GaussianIndex(index_dim))


def make_data(key, size=7):
    x = jr.normal(key, (size, 3))
    return Batch.of(x, jnp.sin(x[:, 0]))


def same(first, second):
    """Return whether two trees hold bit-identical arrays."""
    return eqx.tree_equal(eqx.filter(first, eqx.is_array), eqx.filter(second, eqx.is_array))


def close(first, second):
    """Return whether the ENNs of two states agree up to rounding."""
    arrays = (eqx.filter(state.model, eqx.is_inexact_array) for state in (first, second))
    return eqx.tree_equal(*arrays, rtol=1e-4, atol=1e-5)


def compiled(loss, num_steps, batches, optimizer=SGD, num_index_samples=2):
    """Return a compiled loop."""
    settings = dict(objective=objective_of(loss, num_index_samples), optimizer=optimizer)
    return eqx.filter_jit(ft.partial(train_steps, **settings, batches=batches, num_steps=num_steps))


def objective_of(loss, num_index_samples=2):
    """Return the objective of Algorithm 1."""
    return EpistemicObjective(loss, num_index_samples=num_index_samples)


@pytest.mark.parametrize("sampling", [UniformBatches, EpochBatches])
def test_run_does_not_depend_on_how_it_is_cut(sampling, getkey):
    data, state = make_data(getkey()), init_state(linear_epinet(getkey()), SGD, key=getkey())
    loss = SquaredLoss(l2=0.01, bootstrap=BernoulliBootstrap(0.3, key=getkey()))
    whole, losses = compiled(loss, 20, sampling(5))(state, data)
    half = compiled(loss, 10, sampling(5))
    first, first_losses = half(state, data)
    second, second_losses = half(first, data)
    assert same(whole, second)
    assert jnp.array_equal(losses, jnp.concatenate([first_losses, second_losses]))
    assert int(whole.step) == 20 and not same(first.model, second.model)


def test_run_is_that_of_single_steps(getkey):
    data, state = make_data(getkey()), init_state(linear_epinet(getkey()), SGD, key=getkey())
    loss = SquaredLoss(l2=0.01, noise_scale=0.3, key=getkey())
    whole, losses = compiled(loss, 6, UniformBatches(5))(state, data)
    for t, ids in enumerate(UniformBatches(5).ids(Steps(7, None, state.step, 6), key=state.key)):
        batch = jax.tree.map(lambda leaf, ids=ids: leaf[ids], data)
        state, metrics = eqx.filter_jit(train_step)(state, batch, objective_of(loss), SGD)
        assert jnp.allclose(metrics["loss"], losses[t], rtol=1e-4, atol=1e-5)
    assert close(state, whole)


class Indexed(AbstractENN):
    """A network with an index that it ignores."""

    network: MLP
    index: AbstractIndex

    def embed(self, x):
        return self.network(x)

    def heads(self, embedding, zs):
        return jnp.broadcast_to(embedding, (zs.shape[0], *embedding.shape))


class Drawn(AbstractPenalty):
    """A penalty that is the index itself, so that losses tell which indices were drawn."""

    def __call__(self, enn, params, z):
        values = jr.key_data(z) if jnp.issubdtype(z.dtype, jax.dtypes.prng_key) else z
        return jnp.mean(values.astype(jnp.float32))


@pytest.mark.parametrize("index", [GaussianIndex(3), ParticleIndex(7), KeyIndex()], ids=["vector", "particle", "key"])
def test_indices_of_a_block_are_those_of_each_step(index, getkey):
    network = MLP(3, 1, (), feature_layers=(), key=getkey())
    state, data = init_state(Indexed(network, index), optax.sgd(0.0), key=getkey()), make_data(getkey())
    _, losses = compiled(SquaredLoss(penalty=Drawn()), 3, UniformBatches(None), optax.sgd(0.0), 6)(state, data)
    (own,) = named_keys(jr.clone(state.key), "index")
    for step, loss in enumerate(losses):
        zs = index.sample_many(6, key=jr.fold_in(jr.clone(own), step))
        expected = mean_loss(SquaredLoss(penalty=Drawn()), state.model, zs, data)
        assert jnp.allclose(loss, expected, rtol=1e-5)


def test_full_batch_is_gradient_descent(getkey):
    data, enn = make_data(getkey()), linear_epinet(getkey())
    loss, state = SquaredLoss(l2=0.01), init_state(enn, SGD, key=getkey())
    after, losses = compiled(loss, 1, UniformBatches(None))(state, data)
    # All data, once: their order does not matter.
    reverse = jax.tree.map(lambda leaf: leaf[::-1], data)
    other, metrics = eqx.filter_jit(train_step)(state, reverse, objective_of(loss), SGD)
    assert jnp.allclose(losses[0], metrics["loss"], rtol=1e-5) and close(after, other)
    assert not close(after, state)


def test_weight_decay_and_penalty_leave_frozen_parts_bit_identical(getkey):
    base = MLP(3, 4, (6,), key=getkey())
    enn = attach(base, out_size=4, index_dim=3, hidden=(5,), key=getkey())
    optimizer = optax.adamw(1e-2, weight_decay=0.5)
    data = Batch.of(jr.normal(getkey(), (8, 3)), jnp.arange(8) % 4)
    loop = compiled(CrossEntropy(l2=1.0), 5, UniformBatches(4), optimizer)
    state, _ = loop(init_state(enn, optimizer, key=getkey()), data)
    mask = trainable_mask(enn)
    assert same(eqx.filter(state.model, mask, inverse=True), eqx.filter(enn, mask, inverse=True))
    assert same(state.model.base.content, base)
    for old, new in zip(jax.tree.leaves(enn.learnable), jax.tree.leaves(state.model.learnable), strict=True):
        assert not jnp.array_equal(old, new)


def test_mask_decides_what_is_trained(getkey):
    enn, data = linear_epinet(getkey()), make_data(getkey())
    mask = eqx.tree_at(
        lambda mask: mask.base, trainable_mask(enn), replace_fn=ft.partial(jax.tree.map, lambda _: False)
    )
    loop = compiled(SquaredLoss(l2=1.0), 3, UniformBatches(4))
    state, _ = loop(init_state(enn, SGD, mask=mask, key=getkey()), data)
    assert same(state.model.base, enn.base) and not same(state.model.learnable, enn.learnable)
    # The penalty sees what is trained only.
    zs = enn.index.sample_many(2, key=getkey())
    params = eqx.filter(enn, mask)
    squares = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(params))
    penalized = mean_loss(SquaredLoss(l2=1.0), enn, zs, data, params=params)
    assert jnp.allclose(penalized - mean_loss(SquaredLoss(), enn, zs, data), squares, rtol=1e-4)


@pytest.mark.usefixtures("as_user")
def test_bad_masks_are_refused(getkey):
    enn, key = linear_epinet(getkey()), getkey()
    mask = trainable_mask(enn)
    with pytest.raises(ValueError, match="`mask` must be a tree of booleans with the structure of `model`"):
        init_state(enn, SGD, mask=mask.base, key=key)
    frozen = eqx.tree_at(lambda mask: mask.priors[0].scale.content, mask, True)
    with pytest.raises(ValueError, match=r"outside of `Frozen` parts only; got \.priors\[0\]\.scale"):
        init_state(enn, SGD, mask=frozen, key=key)
    with pytest.raises(ValueError, match="something to train; got a mask that selects no array"):
        init_state(enn, SGD, mask=jax.tree.map(lambda _: False, mask), key=key)
    with pytest.raises(ValueError, match=r"`mask` must hold booleans; got 1 at \.base"):
        init_state(enn, SGD, mask=jax.tree.map(int, mask), key=key)


def test_states_data_and_losses_can_be_mapped(getkey):
    enns = eqx.filter_vmap(linear_epinet)(jr.split(getkey(), 3))
    keys = jr.split(getkey(), 3)
    states = eqx.filter_vmap(lambda enn, key: init_state(enn, SGD, key=key))(enns, keys)
    data = eqx.filter_vmap(make_data)(jr.split(getkey(), 3))
    losses = eqx.filter_vmap(lambda l2: SquaredLoss(l2=l2))(jnp.array([0.0, 0.1, 1.0]))

    def run(state, data, loss):
        return train_steps(state, data, objective_of(loss), SGD, batches=EpochBatches(3), num_steps=4)

    mapped, values = eqx.filter_jit(eqx.filter_vmap(run))(states, data, losses)
    alone = eqx.filter_jit(run)
    for m in range(3):
        member = jax.tree.map(lambda leaf, m=m: leaf[m] if eqx.is_array(leaf) else leaf, (states, data, losses))
        state, value = alone(*member)
        assert jnp.allclose(value, values[m], rtol=1e-4)
        assert close(state, jax.tree.map(lambda leaf, m=m: leaf[m] if eqx.is_array(leaf) else leaf, mapped))


@pytest.mark.parametrize("bad", ["loss", "update"])
def test_training_stops_before_what_is_not_finite(bad, getkey):
    data, key = make_data(getkey(), size=7), getkey()
    state = init_state(linear_epinet(getkey()), SGD, key=key)
    order = EpochBatches(1).ids(Steps(7, None, state.step, 7), key=key)
    optimizer = SGD
    if bad == "loss":
        data = eqx.tree_at(lambda data: data.y, data, data.y.at[order[3]].set(jnp.inf))
    else:
        optimizer = optax.sgd(lambda t: jnp.where(t == 3, jnp.inf, 0.05))
        state = init_state(state.model, optimizer, key=key)
    loss = SquaredLoss()
    stopped, losses = compiled(loss, 6, EpochBatches(1), optimizer)(state, data)
    good, _ = compiled(loss, 3, EpochBatches(1), optimizer)(state, data)
    assert int(stopped.step) == 3
    assert same(stopped, good)
    assert jnp.all(jnp.isfinite(losses[:3])) and jnp.all(jnp.isnan(losses[4:]))
    assert jnp.isinf(losses[3]) if bad == "loss" else jnp.isfinite(losses[3])
    # Going on meets it again.
    again, _ = compiled(loss, 6, EpochBatches(1), optimizer)(stopped, data)
    assert same(again, stopped)


def test_optimizers_may_ask_for_the_loss(getkey):
    data = make_data(getkey())
    optimizer = optax.lbfgs(memory_size=3)
    state = init_state(linear_epinet(getkey()), optimizer, key=getkey())
    loop = compiled(SquaredLoss(l2=0.1), 10, UniformBatches(None), optimizer, num_index_samples=64)
    _, losses = loop(state, data)
    assert losses[-1] < 0.7 * losses[0]


def test_uniform_batches_are_uniform(getkey):
    key, start = getkey(), jnp.array(3)
    ids = UniformBatches(40).ids(Steps(5, None, start, 50), key=key)
    assert ids.shape == (50, 40)
    frequencies = np.bincount(np.ravel(ids), minlength=5) / 2000
    assert np.allclose(frequencies, 0.2, atol=0.04)
    later = UniformBatches(40).ids(Steps(5, None, start + 10, 4), key=key)
    assert jnp.array_equal(later, ids[10:14])
    # A data set that was padded: the last examples are never seen.
    sizes = jnp.array([1, 3])
    padded = jax.jit(jax.vmap(lambda size: UniformBatches(40).ids(Steps(5, size, start, 2), key=key)))(sizes)
    assert jnp.array_equal(jnp.max(padded, axis=(1, 2)), sizes - 1)
    assert UniformBatches(None).ids(Steps(5, None, start, 4), key=key) is None


@pytest.mark.parametrize(("size", "batch_size"), [(1, 3), (5, 1), (6, 4), (5, 13), (12, 12)])
def test_epochs_hold_every_example_once(size, batch_size, getkey):
    key, num_steps = getkey(), 3 * size
    ids = eqx.filter_jit(lambda start, steps: EpochBatches(batch_size).ids(Steps(size, None, start, steps), key=key))
    stream = np.ravel(ids(jnp.array(0), num_steps))
    epochs = stream[: len(stream) // size * size].reshape(-1, size)
    assert np.array_equal(np.sort(epochs, axis=1), np.tile(np.arange(size), (len(epochs), 1)))
    assert size < 5 or len(np.unique(epochs[:3], axis=0)) > 1
    start = 2 * size - 1
    later = ids(jnp.array(start), 2)
    assert np.array_equal(np.ravel(later), stream[start * batch_size :][: 2 * batch_size])


def test_epochs_go_on_after_very_many_steps(getkey):
    # The number of examples seen is beyond 32 bits; the step is not.
    size, start = 6, 6 * 10**8
    stream = np.ravel(EpochBatches(9).ids(Steps(size, None, jnp.array(start), 4), key=getkey()))
    assert np.array_equal(np.sort(stream.reshape(-1, size), axis=1), np.tile(np.arange(size), (6, 1)))


def test_bad_batches_are_refused(getkey):
    key, start = getkey(), jnp.array(0)
    for sampling in (UniformBatches, EpochBatches):
        with pytest.raises(ValueError, match="`batch_size` must be a positive integer; got 0"):
            sampling(0)
    with pytest.raises(ValueError, match="`data_size` must be None unless"):
        EpochBatches(4).ids(Steps(8, jnp.array(5), start, 1), key=key)
    with pytest.raises(ValueError, match=r"`batch_size` must be small enough .* for 1281167 examples; got 4096"):
        EpochBatches(4096).ids(Steps(1281167, None, start, 1), key=key)
    with pytest.raises(ValueError, match="`num_steps` must be a positive integer; got 0"):
        state = init_state(linear_epinet(getkey()), SGD, key=key)
        compiled(SquaredLoss(), 0, UniformBatches(4))(state, make_data(getkey()))


def test_sweeping_scalars_compiles_once(getkey):
    data, state = make_data(getkey()), init_state(linear_epinet(getkey()), SGD, key=getkey())
    traces = 0

    @eqx.filter_jit
    def run(loss, state):
        nonlocal traces
        traces += 1
        return train_step(state, data, objective_of(loss), SGD)

    for l2, scale in ((0.0, 1.0), (0.1, 2.0), (1.0, 0.0)):
        run(SquaredLoss(l2=l2), eqx.tree_at(lambda s: s.model, state, state.model.with_prior_scales(scale)))
    assert traces == 1


def test_training_finds_the_least_squares_solution(getkey):
    # The base network of the linear-Gaussian epinet converges to ridge regression, whatever noise and prior are.
    data, key, l2 = make_data(getkey(), size=12), getkey(), 0.05
    optimizer = optax.sgd(optax.cosine_decay_schedule(0.1, 1500))
    loss = SquaredLoss(l2=l2, noise_scale=0.3, key=key)
    state = init_state(linear_epinet(getkey()), optimizer, key=getkey())
    state, _ = compiled(loss, 1500, UniformBatches(None), optimizer, num_index_samples=32)(state, data)
    design = jnp.concatenate([data.x, jnp.ones((12, 1))], axis=1)
    expected = jnp.linalg.solve(design.T @ design / 12 + l2 * jnp.eye(4), design.T @ data.y / 12)
    layer = state.model.base.layers[0]
    assert jnp.allclose(jnp.append(layer.weight[0], layer.bias), expected, atol=0.03)
    # Each entry of z: the regression of what noise and prior leave.
    directions = jax.vmap(lambda i: jr.normal(jr.fold_in(key, i), (4,)))(data.i)
    noise = 0.3 * directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    prior = jax.vmap(lambda x: state.model.priors[0].enn.content.enn.embed(x))(data.x)[:, :, 0]
    expected = jnp.linalg.solve(design.T @ design / 12 + l2 * jnp.eye(4), design.T @ (noise - 0.8 * prior) / 12)
    layer = state.model.learnable.enn.members.layers[0]
    assert jnp.allclose(jnp.concatenate([layer.weight[:, 0], layer.bias], axis=1), expected.T, atol=0.03)


def test_losses_of_twenty_steps_are_pinned():
    pinned = jnp.array([1.481985, 1.155061, 1.472417, 1.243381, 1.416546])
    x = jnp.stack([jnp.linspace(-1, 1, 16), jnp.linspace(0, 1, 16) ** 2, jnp.ones(16)], axis=1)
    data = Batch.of(x, (jnp.arange(16) * 7) % 3)
    base_key, enn_key, train_key = jr.split(jr.key(2), 3)
    enn = attach(MLP(3, 3, (8,), key=base_key), out_size=3, index_dim=4, hidden=(6,), freeze=False, key=enn_key)
    optimizer = optax.adam(1e-2)
    loop = compiled(CrossEntropy(l2=1e-3), 20, UniformBatches(8), optimizer, num_index_samples=4)
    _, losses = loop(init_state(enn, optimizer, key=train_key), data)
    assert jnp.allclose(losses[jnp.array([0, 4, 9, 14, 19])], pinned, atol=1e-4)
    assert math.isclose(float(jnp.mean(losses)), 1.291996, abs_tol=1e-4)
