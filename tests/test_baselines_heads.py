"""Heteroscedastic, SNGP, marginalized and composed ENNs: closed forms and identities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from epinet_eqx import Draws, Frozen, count_parameters, trainable_mask
from epinet_eqx.baselines import SNGP, Heteroscedastic, RandomFeatures, with_posterior
from epinet_eqx.bayes import Deterministic
from epinet_eqx.combinators import Marginalized, OnTrunk
from epinet_eqx.losses import Batch, CrossEntropy, mean_loss
from epinet_eqx.networks import MLP, ConvNet, FunctionNetwork, headless
from epinet_eqx.predict import marginal_log_probs
from epinet_eqx.training import fit, fit_many

pytestmark = pytest.mark.once


def test_heteroscedastic_logits_written_out(getkey):
    enn, x, z = Heteroscedastic(5, 3, rank=2, temperature=0.5, key=getkey()), jr.normal(getkey(), (5,)), jnp.arange(5.0)
    mean, deviation = enn.mean(x), jnp.log1p(jnp.exp(enn.deviation(x))) + 1e-3
    factors = enn.factors(x).reshape(2, 3)
    expected = (mean + z[0] * factors[0] + z[1] * factors[1] + deviation * z[2:]) / 0.5
    assert jnp.allclose(enn(x, z), expected, atol=1e-5)
    # The covariance over z is that of the factors and the diagonal.
    jacobian = jax.jacobian(lambda z: enn(x, z))(z)
    assert jnp.allclose(jacobian @ jacobian.T, 4 * (factors.T @ factors + jnp.diag(deviation**2)), atol=1e-4)


def test_heteroscedastic_without_noise_is_a_linear_layer_at_every_index(getkey):
    enn = Heteroscedastic(5, 3, rank=2, key=getkey())
    still = (jnp.zeros((6, 5)), jnp.zeros((3, 5)), jnp.full(3, -100.0))
    enn = eqx.tree_at(lambda e: (e.factors.weight, e.deviation.weight, e.deviation.bias), enn, still)
    x, zs = jr.normal(getkey(), (5,)), enn.index.sample_many(4, key=getkey())
    # What is left of the noise is the smallest deviation.
    left = 1e-3 * zs[:, 2:]
    assert jnp.allclose(enn.heads(enn.embed(x), zs), (enn.mean(x)[None] + left) / 1.5, atol=1e-6)


def test_heteroscedastic_temperature_is_frozen_and_swept_by_one_program(getkey):
    enn = Heteroscedastic(5, 3, key=getkey())
    assert enn.index.shape == (15 + 3,) and not any(jax.tree.leaves(trainable_mask(enn).temperature))
    x, z, key = jr.normal(getkey(), (5,)), enn.index.sample(key=getkey()), getkey()
    outputs = eqx.filter_vmap(lambda t: Heteroscedastic(5, 3, temperature=t, key=key)(x, z))(jnp.array([1.0, 2.0]))
    assert jnp.allclose(outputs[0], 2 * outputs[1], atol=1e-6)


def test_marginalized_is_the_log_of_the_average_prediction(getkey):
    enn = Heteroscedastic(5, 3, rank=2, key=getkey())
    x, averaged, key = jr.normal(getkey(), (2, 5)), Marginalized(enn, 6), getkey()
    zs = averaged.index.sample(key=key)
    expected = marginal_log_probs(enn, x, Draws.sample(enn.index, 6, key=key))
    outputs = jax.vmap(lambda x: averaged(x, zs))(x)
    assert zs.shape == averaged.index.shape and jnp.allclose(outputs, expected, atol=1e-5)
    # Its log loss is below the average log loss, by Jensen's inequality, and equal at a single index.
    batch = Batch.of(x, jnp.array([0, 2]))
    assert mean_loss(CrossEntropy(), averaged, zs[None], batch) < mean_loss(CrossEntropy(), enn, zs, batch)
    single = mean_loss(CrossEntropy(), Marginalized(enn, 1), zs[:1, None], batch)
    assert jnp.allclose(single, mean_loss(CrossEntropy(), enn, zs[:1], batch), rtol=1e-5)


def test_score_of_a_tuple_of_indices_is_standard_normal(getkey):
    index, key = Marginalized(Heteroscedastic(2, 2, rank=1, key=getkey()), 3).index, getkey()
    scores = jax.vmap(lambda z: index.score(z, key=key))(index.sample_many(2000, key=getkey()))
    assert index.size == 9 and abs(jnp.mean(scores)) < 4 / 2000**0.5
    assert abs(jnp.var(scores) - 1) < 4 * (2 / 2000) ** 0.5


def test_training_on_the_average_prediction_finds_noise_that_the_average_loss_removes(getkey):
    # Labels are a coin: noise of the logits neither helps nor hurts the average prediction, but hurts each sample.
    data, key = Batch.of(jnp.ones((40, 1)), jr.bernoulli(getkey(), 0.5, (40,)).astype(jnp.int32)), getkey()
    enn = Heteroscedastic(1, 2, rank=1, temperature=1.0, key=key)
    options = {"num_steps": 60, "batch_size": None, "optimizer": optax.adam(0.05), "progress": False, "key": key}
    plain = fit(enn, data, CrossEntropy(), num_index_samples=64, **options).enn
    averaged = fit(Marginalized(enn, 64), data, CrossEntropy(), num_index_samples=1, **options).enn.enn

    def spread(enn):
        embedding = enn.embed(jnp.ones(1))
        return jnp.sum(jnp.square(embedding.factors[:, 0] - embedding.factors[:, 1])) + jnp.sum(embedding.deviation**2)

    assert spread(plain) < 0.3 * spread(averaged)


def test_random_features_are_those_of_a_gaussian_kernel(getkey):
    random = RandomFeatures(6, 4000, scale=0.7, key=getkey())
    x, y = jr.normal(getkey(), (2, 6))
    kernel = jnp.exp(-(0.7**2) * jnp.sum(jnp.square(x - y)) / 2)
    # Four standard errors; a product of cosines has a standard deviation below one half.
    assert abs(2 * jnp.mean(random(x) * random(y)) - kernel) < 4 / 4000**0.5
    directions = random.weight[:6] / jnp.linalg.norm(random.weight[:6], axis=1, keepdims=True)
    assert jnp.allclose(directions @ directions.T, jnp.eye(6), atol=1e-5)
    assert abs(jnp.std(random.weight) - 0.7) < 0.02 and jnp.all((random.bias >= 0) & (random.bias < 2 * jnp.pi))
    # Fewer random features than inputs: one group of them.
    few = RandomFeatures(6, 4, key=getkey()).weight
    assert few.shape == (4, 6) and jnp.allclose(few @ few.T, jnp.diag(jnp.sum(few**2, axis=1)), atol=1e-6)


def test_sngp_posterior_is_that_of_bayesian_linear_regression(getkey):
    enn, x, data = SNGP(3, 2, num_features=7, feature_scale=1.0, key=getkey()), *jr.normal(getkey(), (2, 5, 3))
    posterior = with_posterior(enn, data, ridge=2.0)
    random = np.cos(np.asarray(data @ enn.random_features.content.weight.T + enn.random_features.content.bias[None]))
    covariance = np.linalg.inv(2 * np.eye(7) + random.T @ random)
    at_x = jax.vmap(enn.random_features)(x)
    # The output is linear in z, so its covariance over z is the square of its derivative: coherent over inputs.
    jacobian = jax.jacobian(lambda z: jax.vmap(lambda x: posterior(x, z))(x))(jnp.zeros(14))
    joint = jnp.einsum("ncz,mdz->ncmd", jacobian, jacobian)
    expected = np.einsum("nm,cd->ncmd", at_x @ covariance @ at_x.T, np.eye(2))
    assert np.allclose(joint, expected, atol=1e-5)
    assert jnp.allclose(posterior(x[0], jnp.zeros(14)), at_x[0] @ enn.weight, atol=1e-6)
    # Batches add up, and the scale multiplies deviations.
    added = enn.with_gram(enn.gram(data[:2]) + enn.gram(data[2:]), ridge=2.0)
    assert jnp.allclose(added.root.content, posterior.root.content, atol=1e-5)
    z = posterior.index.sample(key=getkey())
    mean, near, far = posterior(x[0], 0 * z), posterior(x[0], z), posterior.with_scale(15.0)(x[0], z)
    assert jnp.allclose(far - mean, 15 * (near - mean), atol=1e-4)


def test_sngp_without_data_is_the_prior_and_without_posterior_deterministic(getkey):
    enn, x = SNGP(3, 2, num_features=7, key=getkey()), jr.normal(getkey(), (3,))
    z = enn.index.sample(key=getkey())
    random = enn.random_features(x)
    assert jnp.array_equal(enn(x, z), random @ enn.weight)
    prior = enn.with_gram(jnp.zeros((7, 7)), ridge=4.0)
    assert jnp.allclose(prior(x, z), random @ (enn.weight + z.reshape(7, 2) / 2), atol=1e-5)
    # Many examples leave no doubt where they are, and do not break the root in single precision.
    sure = enn.with_gram(1e9 * jnp.outer(random, random))
    assert jnp.allclose(sure(x, z), random @ enn.weight, atol=1e-2) and jnp.all(jnp.isfinite(sure.root.content))


def test_on_trunk_is_a_composition_and_a_frozen_trunk_stays(getkey):
    trunk, head = MLP(3, 4, (6,), key=getkey()), Heteroscedastic(6, 4, rank=2, key=getkey())
    x, z = jr.normal(getkey(), (3,)), head.index.sample(key=getkey())
    model = OnTrunk(trunk, head)
    assert jnp.array_equal(model(x, z), head(trunk.with_features(x)[1], z))
    identity = OnTrunk(FunctionNetwork(lambda x: (x, x)), Deterministic(trunk))
    assert jnp.array_equal(identity(x, jnp.array(0)), trunk(x))
    for part, moves in ((trunk, True), (Frozen(trunk), False)):
        grads = eqx.filter_grad(lambda model: jnp.sum(model(x, z)))(OnTrunk(part, head))
        weight = (grads.trunk if moves else grads.trunk.content).layers[0].weight
        assert bool(jnp.any(weight != 0)) == moves
        assert any(jax.tree.leaves(trainable_mask(OnTrunk(part, head)).trunk)) == moves


def test_headless_keeps_features_and_drops_what_nobody_uses(getkey):
    mlp = MLP(3, 4, (6,), key=getkey())
    conv = ConvNet((1, 4, 4), 5, channels=(2,), kernels=(3,), strides=(2,), key=getkey())
    for network, x, dropped in ((mlp, jnp.ones(3), 4 * 7), (conv, jnp.ones((1, 4, 4)), 5 * 9)):
        trunk = headless(network)
        output, features = trunk.with_features(x)
        assert output.shape == (0,) and jnp.array_equal(features, network.with_features(x)[1])
        assert count_parameters(trunk) == count_parameters(network) - dropped
        assert trunk.feature_dim == network.feature_dim
    stacked = headless(eqx.filter_vmap(lambda key: MLP(3, 4, (6,), key=key))(jr.split(getkey(), 2)))
    assert stacked.layers[-1].weight.shape == (2, 0, 6)


def test_stacked_members_train_and_get_their_posteriors_together(getkey):
    x, y, key = jr.normal(getkey(), (20, 3)), jnp.arange(20) % 4, getkey()

    def make(key):
        return OnTrunk(headless(MLP(3, 4, (6,), key=key)), SNGP(6, 4, num_features=9, feature_scale=1.0, key=key))

    members = eqx.filter_vmap(make)(jr.split(key, 2))
    result = fit_many(
        members, (x, y), CrossEntropy(), num_steps=30, num_index_samples=1, progress=False, block_size=30, key=key
    )
    losses = np.asarray(result.history.losses)
    assert np.all(losses[-5:].mean(0) < losses[:5].mean(0))
    posterior = eqx.filter_vmap(lambda enn: with_posterior(enn, x))(result.enn)
    first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, (result.enn, posterior))
    assert jnp.allclose(with_posterior(first[0], x).enn.root.content, first[1].enn.root.content, atol=1e-4)


def test_bad_input_is_named(getkey, as_user):
    key, het = getkey(), Heteroscedastic(5, 3, key=getkey())
    with pytest.raises(ValueError, match="`rank` must be a positive integer; got 0"):
        Heteroscedastic(5, 3, rank=0, key=key)
    with pytest.raises(ValueError, match="`temperature` must be finite and at least 1e-06; got 0.0"):
        Heteroscedastic(5, 3, temperature=0.0, key=key)
    with pytest.raises(ValueError, match=r"`x` must have shape \(5,\); got \(4,\)"):
        het.embed(jnp.ones(4))
    with pytest.raises(ValueError, match=r"`x` must have shape \(2,\); got \(3,\)"):
        SNGP(2, 2, num_features=3, key=key).embed(jnp.ones(3))
    with pytest.raises(ValueError, match=r"`gram` must have shape \(3, 3\); got \(2, 2\)"):
        SNGP(2, 2, num_features=3, key=key).with_gram(jnp.eye(2))
    with pytest.raises(ValueError, match="`ridge` must be finite and at least 1e-12; got 0.0"):
        with_posterior(SNGP(2, 2, num_features=3, key=key), jnp.ones((4, 2)), ridge=0.0)
    with pytest.raises(ValueError, match="`x` must not be empty"):
        with_posterior(SNGP(2, 2, num_features=3, key=key), jnp.ones((0, 2)))
    with pytest.raises(TypeError, match="`enn` must be an `SNGP`, bare or `OnTrunk`; got Heteroscedastic"):
        with_posterior(het, jnp.ones((4, 5)))
    with pytest.raises(ValueError, match="`num_samples` must be a positive integer; got 0"):
        Marginalized(het, 0)
    with pytest.raises(TypeError, match="`network` must be an `MLP`, a `ConvNet` or a `ResNet`; got FunctionNetwork"):
        headless(FunctionNetwork(lambda x: (x, x)))
