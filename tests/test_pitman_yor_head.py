"""The Pitman-Yor head as an ENN: its samples, losses and parameters, and what it refuses."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Table

import epinet_eqx as epi
from epinet_eqx import pitman_yor
from epinet_eqx.networks import MLP, FunctionNetwork

pytestmark = pytest.mark.once


@pytest.fixture
def network(getkey):
    return MLP(3, 4, (16,), key=getkey())


def test_sampled_and_exact_agree_as_the_length_scale_vanishes(network, getkey):
    x = 2 * jr.normal(getkey(), (8, 3))
    # Rare labels would need far more indices, and whether 4000 suffice would depend on rounding, which draws the field.
    y = jnp.argmax(jax.vmap(network)(x), axis=-1)
    enn = pitman_yor.attach(network, x, alpha=0.5, length_scale=1e-3, num_frequencies=200, key=getkey())
    exact = pitman_yor.log_losses(enn, x, y, tau=3)
    sampled = epi.metrics.log_losses(enn, x, y, epi.Draws.sample(enn.index, 4000, key=getkey(), chunk_size=500), tau=3)
    np.testing.assert_allclose(sampled.marginal.values, exact.marginal.values, atol=0.08)
    np.testing.assert_allclose(sampled.joint.values, exact.joint.values, atol=0.1)
    # With a long reach the anchors of a pair are no longer independent.
    far = enn.with_parameters(length_scale=100.0)
    dependent = epi.metrics.log_losses(
        far, x, y, epi.Draws.sample(far.index, 4000, key=getkey(), chunk_size=500), tau=3
    )
    assert jnp.max(jnp.abs(dependent.joint.values - exact.joint.values)) > 0.15
    difference = exact.joint - sampled.joint
    assert difference.num_samples == 4000 and exact.joint.exact


def test_exact_losses_are_comparable_and_at_one_those_of_the_base(network, getkey):
    x, y = jr.normal(getkey(), (6, 3)), jnp.asarray([0, 1, 2, 3, 0, 1])
    enn = pitman_yor.attach(network, x, alpha=1.0, temperature=1.3, key=getkey())
    exact = pitman_yor.log_losses(enn, x, y)
    sampled = epi.metrics.log_losses(enn, x, y, epi.Draws.sample(enn.index, 2, key=getkey()))
    np.testing.assert_allclose(exact.marginal.values, sampled.marginal.values, atol=1e-6)
    np.testing.assert_allclose(exact.joint.values, sampled.joint.values, rtol=1e-5)
    np.testing.assert_array_equal(exact.error.values, sampled.error.values)
    sharper = pitman_yor.log_losses(enn.with_parameters(alpha=0.05), x, y)
    np.testing.assert_array_equal(exact.marginal.values, sharper.marginal.values)
    assert sharper.joint.mean < exact.joint.mean
    # Each anchor has none of the ten draws with probability 1/1024, and pays its marginal loss otherwise.
    limit = pitman_yor.log_losses(enn.with_parameters(alpha=1e-3), x, y)
    sums = (1 - 2**-10) * exact.marginal.values.reshape(-1, 2).sum(axis=1)
    np.testing.assert_allclose(limit.joint.values, sums, atol=0.02)
    assert "M = inf, exact" in str(sharper.joint)


def test_losses_of_stored_logits_are_those_of_the_enn(network, getkey):
    x, y = jr.normal(getkey(), (6, 3)), jnp.asarray([0, 1, 2, 3, 0, 1])
    alpha = pitman_yor.LogisticAlpha(0.5 * jr.normal(getkey(), (16,)), -1.0)
    enn = pitman_yor.attach(network, x, alpha=alpha, temperature=2.0, key=getkey())
    logits, alphas = pitman_yor.tempered_outputs(enn, x, batch_size=4)
    np.testing.assert_allclose(logits, jax.vmap(network)(x) / 2, rtol=1e-6)
    assert jnp.unique(alphas).size > 1
    found = pitman_yor.logits_log_losses(jax.vmap(network)(x), y, alpha=alphas, temperature=2.0)
    np.testing.assert_allclose(found.joint.values, pitman_yor.log_losses(enn, x, y).joint.values, rtol=1e-5)


def test_field_has_variance_one_everywhere_and_correlations_of_the_length_scale(getkey):
    features = jr.normal(getkey(), (50, 6)) * jnp.asarray([[1.0, 10.0, 0.1, 1.0, 1.0, 0.0]])
    field = pitman_yor.FourierField(features, 4000, length_scale=0.7, key=getkey())
    standardized = jax.vmap(field.standardize)(jnp.concatenate([features, 100 * features]))
    vectors = jax.vmap(field)(standardized)
    np.testing.assert_allclose(jnp.sum(vectors**2, axis=1), 1, rtol=1e-4)
    # Five of the features vary.
    squared = jnp.sum((standardized[:1] - standardized[:50]) ** 2, axis=1) / 5
    np.testing.assert_allclose(vectors[:50] @ vectors[0], jnp.exp(-squared / (2 * 0.7**2)), atol=0.06)


def test_parameters_are_swept_without_compiling_and_trained_when_asked(network, getkey):
    x = jr.normal(getkey(), (5, 3))
    enn = pitman_yor.attach(network, x, alpha=0.3, freeze=False, key=getkey())
    z = enn.index.sample(key=getkey())
    traces = []

    @eqx.filter_jit
    def loss(enn):
        traces.append(1)
        return -jax.nn.log_softmax(enn(x[0], z))[0]

    for alpha, temperature, length_scale in ((0.3, 1.0, 0.3), (0.02, 2.0, 1.0), (1.0, 0.5, 9.0)):
        assert jnp.isfinite(loss(enn.with_parameters(alpha=alpha, temperature=temperature, length_scale=length_scale)))
    assert len(traces) == 1
    slopes = eqx.filter_grad(loss)(enn)
    assert slopes.alpha.value != 0 and slopes.field.length_scale != 0
    assert not any(jnp.any(leaf) for leaf in jax.tree.leaves(eqx.filter(slopes.base, eqx.is_array)))
    frozen = pitman_yor.attach(network, x, key=getkey())
    assert not any(jax.tree.leaves(epi.trainable_mask(frozen)))


@pytest.mark.parametrize("alpha", [1e-3, 0.02, 0.5])
def test_sampled_logits_and_their_gradients_are_finite_with_the_index_in_the_tails(alpha, network, getkey):
    x = jr.normal(getkey(), (5, 3))
    enn = pitman_yor.attach(network, x, alpha=alpha, length_scale=0.05, freeze=False, key=getkey())
    signs = jr.rademacher(getkey(), (7, *enn.index.shape), float)
    zs = jnp.asarray([0.0, 1.0, 3.0, 6.0, 9.0, 12.0, 30.0])[:, None] * signs

    def loss(enn):
        log_p = jax.nn.log_softmax(jax.vmap(lambda x: enn.heads(enn.embed(30 * x), zs))(x))
        return -jnp.mean(log_p), log_p

    (value, log_p), slopes = eqx.filter_jit(eqx.filter_value_and_grad(loss, has_aux=True))(enn)
    assert log_p.dtype == jnp.float32 and bool(jnp.all(jnp.isfinite(log_p))) and value > 0
    assert bool(jnp.isfinite(slopes.alpha.value)) and slopes.alpha.value != 0
    assert bool(jnp.isfinite(slopes.field.length_scale)) and slopes.field.length_scale != 0


def test_save_and_load(network, getkey, tmp_path):
    x = jr.normal(getkey(), (5, 3))
    enn = pitman_yor.attach(network, x, alpha=0.3, key=getkey())
    epi.save(tmp_path / "head.safetensors", enn, {"classes": 4})
    other = pitman_yor.attach(network, 2 * x, alpha=0.5, key=getkey())
    loaded = epi.load(tmp_path / "head.safetensors", other)
    assert eqx.tree_equal(eqx.filter(loaded, eqx.is_array), eqx.filter(enn, eqx.is_array))


def test_mean_prediction_of_an_enn_is_kept_and_its_joint_one_is_the_heads(network, getkey, tmp_path):
    x, y = jr.normal(getkey(), (6, 3)), jnp.asarray([0, 1, 2, 3, 0, 1])
    epinet = epi.attach(network, out_size=4, index_dim=3, hidden=(5,), prior_scale=3.0, key=getkey())
    draws = epi.Draws.sample(epinet.index, 20, key=getkey())
    base = pitman_yor.MeanPrediction(epinet, draws)
    enn = pitman_yor.attach(base, x, alpha=0.2, key=getkey())
    own, exact = epi.metrics.log_losses(epinet, x, y, draws), pitman_yor.log_losses(enn, x, y)
    np.testing.assert_allclose(exact.marginal.values, own.marginal.values, rtol=1e-5)
    stored = jax.nn.log_softmax(jax.vmap(base)(x))
    np.testing.assert_allclose(
        exact.joint.values, pitman_yor.logits_log_losses(stored, y, alpha=0.2).joint.values, rtol=1e-5
    )
    # The features are those of the epinet's base.
    np.testing.assert_array_equal(base.with_features(x[0])[1], network.with_features(x[0])[1])
    epi.save(tmp_path / "head.safetensors", enn)
    loaded = epi.load(tmp_path / "head.safetensors", eqx.tree_at(lambda enn: enn.base.content.zs, enn, 0 * base.zs))
    np.testing.assert_array_equal(loaded.base.content.zs, base.zs)


def test_mean_of_particles_needs_features(getkey):
    outputs = jr.normal(getkey(), (3, 6, 4))
    table = Table(outputs)
    draws = epi.Draws.all(table.index)
    with pytest.raises(ValueError, match=r"`features` must be given for an ENN without a base network.* got None for"):
        pitman_yor.MeanPrediction(table, draws)
    base = pitman_yor.MeanPrediction(table, draws, features=lambda enn, x: jax.nn.one_hot(x, 6))
    enn = pitman_yor.attach(base, jnp.arange(6), alpha=0.3, key=getkey())
    expected = jnp.log(jnp.mean(jax.nn.softmax(outputs), axis=0))
    np.testing.assert_allclose(pitman_yor.tempered_outputs(enn, jnp.arange(6))[0], expected, rtol=1e-5)


BAD_ATTACH = {
    "alpha of zero": (
        {"alpha": 0.0}, r"`alpha` must be at least 0.001 and at most 1; got 0\."),
    "alpha above one": ({"alpha": 1.5}, r"`alpha` must be at least 0.001 and at most 1; got 1.5\."),
    "alpha not a number": ({"alpha": math.nan}, "`alpha` must be at least 0.001 and at most 1; got nan"),
    "temperature": ({"temperature": 0.0}, "`temperature` must be finite and at least 1e-06"),
    "length scale": ({"length_scale": -1.0}, "`length_scale` must be finite and at least 1e-06"),
    "frequencies": ({"num_frequencies": 0}, "`num_frequencies` must be a positive integer"),
    "one example": ({"examples": jnp.zeros((1, 3))}, "`examples` must hold at least 2 inputs"),
    "constant features": ({"examples": jnp.ones((5, 3))}, "got zero variance of all 16 features"),
    "one class": (
        {"base": FunctionNetwork(lambda x: (x[:1], x))}, "`base` must have at least 2 classes; got 1"),
    "infinite logits": (
        {"base": FunctionNetwork(lambda x: (jnp.asarray([0.0, -jnp.inf]), x))}, "`logits` must be finite; got 5"),
    "scalar output": ({"base": FunctionNetwork(lambda x: (x[0], x))}, "`base` must map one example"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ATTACH)
def test_attach_says_what_is_wrong(name, network, getkey, as_user):
    changed, message = BAD_ATTACH[name]
    arguments = {"base": network, "examples": jr.normal(getkey(), (5, 3)), "key": getkey(), **changed}
    with pytest.raises(ValueError, match=message):
        pitman_yor.attach(arguments.pop("base"), arguments.pop("examples"), **arguments)


BAD_LOGITS = {
    "odd": ({"logits": jnp.zeros((3, 2)), "y": jnp.zeros(3, int)}, "an even number"),
    "one class": ({"logits": jnp.zeros((4, 1)), "y": jnp.zeros(4, int)}, "at least 2 classes"),
    "minus infinity": ({"logits": jnp.full((2, 2), -jnp.inf), "y": jnp.zeros(2, int)}, "`logits` must be finite"),
    "labels": ({"y": jnp.asarray([0, 1, 2, 5])}, "`y` must hold classes from 0 to 2"),
    "number of labels": ({"y": jnp.asarray([0, 1])}, "`y` must hold one label per row of `logits`, 4"),
    "alphas": ({"alpha": jnp.asarray([0.1, 2.0, 0.3, 0.4])}, "got values from 0.1 to 2"),
    "number of alphas": ({"alpha": jnp.asarray([0.1, 0.2])}, "`alpha` must be a number or one per example, 4"),
    "tau": ({"tau": 0}, "`tau` must be a positive integer"),
}


@pytest.mark.parametrize("name", BAD_LOGITS)
def test_losses_say_what_is_wrong(name, as_user):
    changed, message = BAD_LOGITS[name]
    arguments = {"logits": jnp.zeros((4, 3)), "y": jnp.asarray([0, 1, 2, 0]), "alpha": 0.2, **changed}
    with pytest.raises(ValueError, match=message):
        pitman_yor.logits_log_losses(arguments.pop("logits"), arguments.pop("y"), **arguments)
