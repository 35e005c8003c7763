"""MIMO: members, tuples of examples, and the loss over members."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import Draws
from epinet_eqx.baselines import MIMO, MIMOLoss, mimo_batch
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.losses import Batch, CrossEntropy, SquaredLoss
from epinet_eqx.networks import MLP, ConvNet
from epinet_eqx.predict import marginal_log_probs
from epinet_eqx.training import fit, fit_many

pytestmark = pytest.mark.once


def test_members_are_rows_of_one_run_on_repeated_inputs(getkey):
    network, x = MLP(6, 8, (5,), key=getkey()), jr.normal(getkey(), (3,))
    enn = MIMO(network)
    outputs = network(jnp.concatenate([x, x])).reshape(2, 4)
    assert jnp.array_equal(enn.heads(enn.embed(x), jnp.array([1, 0, 1])), outputs[jnp.array([1, 0, 1])])
    # The average over members is exact: there are only so many.
    expected = jax.nn.logsumexp(jax.nn.log_softmax(outputs), axis=0) - jnp.log(2.0)
    assert jnp.allclose(marginal_log_probs(enn, x[None], Draws.all(enn.index))[0], expected, atol=1e-6)


def test_images_are_concatenated_along_channels(getkey):
    network = ConvNet((6, 4, 4), 6, channels=(2,), kernels=(3,), strides=(2,), key=getkey())
    x = jr.normal(getkey(), (2, 4, 4))
    assert MIMO(network, 3).embed(x).shape == (3, 2)
    batch = Batch.of(jr.normal(getkey(), (5, 2, 4, 4)), jnp.arange(5))
    tuples = mimo_batch(batch, num_members=3, key=getkey())
    assert tuples.x.shape == (5, 6, 4, 4) and tuples.y.shape == (5, 3)
    own = jax.vmap(lambda x, y: x.reshape(3, 2, 4, 4) == batch.x[y])(tuples.x, tuples.y)
    assert jnp.all(own)


def test_members_of_separate_networks_are_an_ensemble(getkey):
    # Where the first layer keeps inputs apart, members do not see each other: MIMO is then an ensemble.
    first, second = MLP(3, 4, (), key=getkey()), MLP(3, 4, (), key=getkey())
    enn = MIMO(lambda x: jnp.concatenate([first(x[:3]), second(x[3:])]))
    ensemble, x = Ensemble.of([first, second]), jr.normal(getkey(), (3,))
    for z in jnp.arange(2):
        assert jnp.allclose(enn(x, z), ensemble(x, z), atol=1e-6)


@pytest.mark.parametrize("repeats", [1, 2])
def test_tuples_use_all_examples_equally_and_repeat_a_given_fraction(repeats, getkey):
    batch = Batch(jnp.arange(50.0)[:, None], jnp.arange(50), jnp.arange(50) + 100)
    tuples = mimo_batch(batch, num_repeats=repeats, key=getkey())
    assert tuples.y.shape == (50 * repeats, 2) and jnp.array_equal(tuples.x, tuples.y.astype(float))
    assert jnp.array_equal(tuples.i, tuples.y[:, 0] + 100)
    for member in range(2):
        assert np.array_equal(np.sort(tuples.y[:, member]), np.repeat(np.arange(50), repeats))
    same = int(jnp.sum(tuples.y[:, 0] == tuples.y[:, 1]))
    assert 30 * repeats <= same <= 36 * repeats
    assert jnp.all(jnp.diff(mimo_batch(batch, repeat_probability=1.0, key=getkey()).y, axis=1) == 0)
    assert jnp.mean(jnp.diff(mimo_batch(batch, repeat_probability=0.0, key=getkey()).y, axis=1) == 0) < 0.2


def test_loss_is_the_sum_over_members(getkey):
    output, y = jr.normal(getkey(), (8,)), jnp.array([3, 1])
    single = CrossEntropy(l2=0.3, label_smoothing=0.1)
    loss, none = MIMOLoss(single), jnp.zeros(8)
    expected = single.data_loss(output[:4], y[0], none[:4]) + single.data_loss(output[4:], y[1], none[4:])
    assert jnp.allclose(loss.data_loss(output, y, none), expected, rtol=1e-5) and loss.penalty is single.penalty
    regression = MIMOLoss(SquaredLoss())
    assert jnp.allclose(regression.data_loss(jnp.array([1.0, 5.0]), jnp.array([0.0, 2.0]), jnp.zeros(2)), 1.0 + 9.0)
    regression.check_targets(jnp.zeros((4, 2)), 2)


def test_training_with_tuples_drawn_anew_goes_on_from_the_state(getkey):
    x, key = jr.normal(getkey(), (40, 3)), getkey()
    data, loss = Batch.of(x, jnp.argmax(x, axis=1)), MIMOLoss(CrossEntropy())
    state, losses = Deterministic(MLP(6, 6, (10,), key=getkey())), []
    for epoch in range(3):
        tuples = mimo_batch(data, key=jr.fold_in(key, epoch))
        result = fit(state, tuples, loss, num_steps=40, batch_size=20, progress=False, block_size=40, key=key)
        state, losses = result.state, [*losses, *result.history.losses]
    assert int(state.step) == 120 and np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
    enn = MIMO(state.model.network)
    assert jnp.array_equal(enn.embed(x[0]).ravel(), state.model(jnp.concatenate([x[0], x[0]]), jnp.array(0)))


def test_stacked_members_have_tuples_of_their_own(getkey):
    data, keys = Batch.of(jr.normal(getkey(), (12, 3)), jnp.arange(12) % 4), jr.split(getkey(), 2)
    networks = jax.vmap(lambda key: Deterministic(MLP(6, 8, (5,), key=key)))(keys)
    tuples = jax.vmap(lambda key: mimo_batch(data, key=key))(jr.split(getkey(), 2))
    result = fit_many(
        networks, tuples, MIMOLoss(CrossEntropy()), num_steps=3, data_axis=0, progress=False, block_size=3, key=getkey()
    )
    assert np.all(np.isfinite(result.history.losses)) and result.history.losses.shape == (3, 2)


def test_bad_input_is_named(getkey, as_user):
    batch = Batch.of(jnp.ones((4, 3)), jnp.arange(4))
    enn = MIMO(MLP(6, 8, (), key=getkey()))
    with pytest.raises(ValueError, match="`repeat_probability` must be from 0 to 1; got 1.5"):
        mimo_batch(batch, repeat_probability=1.5, key=getkey())
    with pytest.raises(ValueError, match=r"`batch` must hold inputs with an axis to concatenate; got shape \(4,\)"):
        mimo_batch(Batch.of(jnp.ones(4), jnp.arange(4)), key=getkey())
    with pytest.raises(ValueError, match=r"`zs` must hold particles from 0 to 1; got \[2\]"):
        enn(jnp.ones(3), jnp.array(2))
    with pytest.raises(ValueError, match=r"`network` must have equally many outputs .* 3 members; got shape \(8,\)"):
        MIMO(MLP(9, 8, (), key=getkey()), 3).embed(jnp.ones(3))
    with pytest.raises(ValueError, match=r"`y` must hold one target for each of 2 members"):
        fit(
            Deterministic(enn.network),
            (jnp.ones((4, 6)), jnp.arange(4)),
            MIMOLoss(CrossEntropy()),
            num_steps=1,
            key=getkey(),
        )
    with pytest.raises(ValueError, match="`num_members` must divide the number of outputs, 8; got 3"):
        MIMOLoss(CrossEntropy(), 3).check_targets(jnp.zeros((4, 3), int), 8)
