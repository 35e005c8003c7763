"""`fit_many`: every member is trained as it would be alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from epinet_eqx.epinet import Epinet, NetworkEnsemble, Reads
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import Batch, BernoulliBootstrap, SquaredLoss
from epinet_eqx.networks import MLP
from epinet_eqx.training import NonFiniteLossError, fit, fit_many

pytestmark = pytest.mark.once

SGD = optax.sgd(0.05)
OPTIONS = dict(batch_size=4, num_index_samples=2, optimizer=SGD, block_size=5, progress=False)


def linear_epinet(key):
    """Return an ENN that is linear in the input and in z."""

    def linear(key):
        return MLP(3, 1, (), feature_layers=(), key=key)

    base, learnable = jr.split(key)
    return Epinet(linear(base), Reads(NetworkEnsemble(linear, 4, key=learnable), "input"), (), GaussianIndex(4))


def make_data(key, size=12):
    x = jr.normal(key, (size, 3))
    return Batch.of(x, jnp.sin(x[:, 0]))


def member(tree, m):
    """Return one member of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[m] if eqx.is_array(leaf) else leaf, tree)


def close(first, second):
    """Return whether two trees agree up to rounding."""
    arrays = (eqx.filter(tree, eqx.is_inexact_array) for tree in (first, second))
    return eqx.tree_equal(*arrays, rtol=1e-4, atol=1e-5)


def same(first, second):
    """Return whether two trees hold bit-identical arrays."""
    return eqx.tree_equal(eqx.filter(first, eqx.is_array), eqx.filter(second, eqx.is_array))


def test_members_are_those_trained_alone(getkey):
    enns, key = eqx.filter_vmap(linear_epinet)(jr.split(getkey(), 3)), getkey()
    data, held_out = make_data(getkey()), make_data(getkey(), size=5)

    loss_key, noise_key = getkey(), getkey()

    def make_loss(m):
        bootstrap = BernoulliBootstrap(0.3, key=jr.fold_in(loss_key, m.astype(int)))
        return SquaredLoss(l2=0.1 * m, noise_scale=0.2, bootstrap=bootstrap, key=jr.fold_in(noise_key, m.astype(int)))

    numbers = jnp.arange(3, dtype=jnp.float32)
    losses = eqx.filter_vmap(make_loss)(numbers)
    options = dict(OPTIONS, num_steps=7, validation=held_out, eval_every=3, keep_best=True)
    many = fit_many(enns, data, losses, loss_axis=0, key=key, **options)
    assert many.history.losses.shape == (7, 3)
    assert np.array_equal(many.history.validation_steps, [3, 6, 7])
    for m in range(3):
        alone = fit(member(enns, m), data, make_loss(numbers[m]), key=jr.fold_in(key, m), **options)
        assert np.allclose(many.history.losses[:, m], alone.history.losses, rtol=1e-4)
        assert np.allclose(many.history.validation_losses[:, m], alone.history.validation_losses, rtol=1e-4)
        assert close(member(many.enn, m), alone.enn) and close(member(many.state.model, m), alone.state.model)
        assert many.history.best_step[m] == alone.history.best_step
    # Going on is the same as not stopping.
    more = dict(options, validation=None, eval_every=None, keep_best=False)
    first = fit_many(enns, data, losses, loss_axis=0, key=key, **dict(more, num_steps=4))
    second = fit_many(first.state, data, losses, loss_axis=0, key=key, **dict(more, num_steps=3))
    assert same(second.state, many.state)


def test_members_may_have_data_of_their_own(getkey):
    enns, key = eqx.filter_vmap(linear_epinet)(jr.split(getkey(), 2)), getkey()
    data = eqx.filter_vmap(make_data)(jr.split(getkey(), 2))
    loss = SquaredLoss(l2=0.01)
    options = dict(OPTIONS, num_steps=7)
    pair = fit_many(enns, (data.x, data.y), loss, data_axis=0, validation=data, key=key, **options)
    alone = fit(member(enns, 1), member(data, 1), loss, validation=member(data, 1), key=jr.fold_in(key, 1), **options)
    assert np.allclose(pair.history.losses[:, 1], alone.history.losses, rtol=1e-4)
    assert np.allclose(pair.history.validation_losses[:, 1], alone.history.validation_losses, rtol=1e-4)
    # Padded data: what lies beyond the size of a member is never seen.
    sizes = jnp.array([12, 5])
    padded = fit_many(enns, data, loss, data_axis=0, data_sizes=sizes, key=key, **options)
    assert close(member(padded.enn, 0), member(pair.enn, 0))
    garbage = eqx.tree_at(lambda data: data.y, data, data.y.at[1, 5:].set(1e25))
    again = fit_many(enns, garbage, loss, data_axis=0, data_sizes=sizes, key=key, **options)
    assert same(again.enn, padded.enn)


def test_failed_members_are_named_and_the_others_are_trained(getkey):
    enns, data, key = eqx.filter_vmap(linear_epinet)(jr.split(getkey(), 3)), make_data(getkey()), getkey()
    good = eqx.filter_vmap(lambda l2: SquaredLoss(l2=l2))(jnp.zeros(3))
    # A penalty whose gradient throws the parameters further away at each step, until their squares overflow.
    bad = eqx.filter_vmap(lambda l2: SquaredLoss(l2=l2))(jnp.array([0.0, 1e5, 0.0]))
    options = dict(OPTIONS, num_steps=12, loss_axis=0)
    expected = fit_many(enns, data, good, key=key, **options)
    with pytest.raises(NonFiniteLossError, match="1 of 3 members stopped: 1 at step") as caught:
        fit_many(enns, data, bad, key=key, **options)
    error = caught.value
    assert list(error.members) == [1] and error.step == error.members[1]
    assert 0 < error.step < 12
    assert np.array_equal(error.state.step, [12, error.step, 12])
    for m in (0, 2):
        assert same(member(error.state, m), member(expected.state, m))
    stopped = member(error.state.model, 1)
    assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(eqx.filter(stopped, eqx.is_array)))
    losses = error.history.losses
    assert losses.shape == (12, 3) and np.isfinite(losses[:, [0, 2]]).all()
    assert np.isnan(losses[error.step + 1 :, 1]).all() and np.isfinite(losses[: error.step, 1]).all()


def test_bad_input_is_refused(getkey):
    enns, data, key = eqx.filter_vmap(linear_epinet)(jr.split(getkey(), 3)), make_data(getkey()), getkey()
    stacked = eqx.filter_vmap(make_data)(jr.split(getkey(), 2))
    options = dict(OPTIONS, num_steps=2, key=key)
    with pytest.raises(ValueError, match="`data_axis` must be None or 0; got 1"):
        fit_many(enns, data, SquaredLoss(), data_axis=1, **options)
    with pytest.raises(ValueError, match="`data` must have a leading axis of 3 members; got 2"):
        fit_many(enns, stacked, SquaredLoss(), data_axis=0, **options)
    with pytest.raises(ValueError, match=r"`models` must hold arrays with one batch size; got leading sizes \[1, 4\]"):
        fit_many(linear_epinet(getkey()), data, SquaredLoss(), **options)
    with pytest.raises(ValueError, match="`x of data` must be finite; got 36 non-finite of 36 values"):
        fit_many(enns, (data.x * jnp.nan, data.y), SquaredLoss(), **options)
    with pytest.raises(ValueError, match="`num_index_samples` must be a positive integer; got 0"):
        fit_many(enns, data, SquaredLoss(), **dict(options, num_index_samples=0))
