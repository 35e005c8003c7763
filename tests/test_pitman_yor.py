"""The Pitman-Yor head: its closed forms against enumeration, its samples against the closed forms."""

import functools as ft
import itertools
import math
from fractions import Fraction

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
from epinet_eqx.pitman_yor._quantile import noise_series, series_noise

pytestmark = pytest.mark.once

LOGITS = jnp.asarray([1.0, 0.2, -1.5])


def stirling(alpha, max_count):
    """Return the generalized Stirling numbers by their definition, as fractions."""
    rows = [[Fraction(1)] + [Fraction(0)] * max_count]
    for n in range(max_count):
        last = rows[-1]
        rows.append([(n - alpha * t) * last[t] + (last[t - 1] if t else 0) for t in range(max_count + 1)])
    return rows


def log_fraction(value):
    """Return the logarithm of a fraction whose parts may be beyond floating point."""
    return -math.inf if value == 0 else math.log(value.numerator) - math.log(value.denominator)


def draws(alpha, num_draws, num_classes, key):
    """Return independent logarithms of stable variables."""
    g1, g2 = jr.normal(key, (2, num_draws, num_classes))
    return pitman_yor.log_stable(jnp.asarray(alpha), g1, g2)


@pytest.mark.parametrize("alpha", [1e-3, 0.25, 0.5, 1.0])
def test_stirling_numbers_are_those_of_the_recursion(alpha):
    found = np.asarray(pitman_yor.log_stirling(alpha, 40))
    rows = stirling(Fraction(float(np.float32(alpha))), 40)
    expected = np.array([[log_fraction(value) for value in row] for row in rows])
    # Impossible entries are minus infinity in both; the tolerance is rounding of logarithms of some hundred.
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-4)


@pytest.mark.parametrize("alpha", [1e-3, 0.02, 0.5, 0.999, 1.0])
def test_clusters_of_many_labels_have_probabilities_and_finite_gradients(alpha):
    @jax.jit
    def check(alpha):
        table = pitman_yor.log_num_clusters(alpha, 1000)
        value, slope = jax.value_and_grad(
            lambda alpha: jnp.sum(pitman_yor.repeat_log_probs(jnp.asarray(-3.0), alpha, 1000))
        )(alpha)
        return jax.nn.logsumexp(table, axis=1), jnp.exp(table[1000]) @ jnp.arange(1001.0), value, slope

    totals, mean, value, slope = check(jnp.asarray(alpha))
    assert jnp.max(jnp.abs(totals)) < 2e-4
    assert jnp.isfinite(value) and jnp.isfinite(slope)
    # The mean number of clusters has a closed form: Gamma(n + alpha) / (Gamma(n) Gamma(1 + alpha)).
    expected = math.exp(math.lgamma(1000 + alpha) - math.lgamma(1000) - math.lgamma(1 + alpha))
    assert mean == pytest.approx(expected, rel=1e-3)


def test_double_precision_is_used_where_it_is_on():
    with jax.enable_x64(True):
        table = pitman_yor.log_num_clusters(jnp.asarray(0.3), 1000)
        assert table.dtype == jnp.float64
        assert float(jnp.max(jnp.abs(jax.nn.logsumexp(table, axis=1)))) < 1e-11


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_two_labels(alpha):
    w = np.asarray(jax.nn.softmax(LOGITS))
    for first, second in itertools.product(range(3), repeat=2):
        counts = np.bincount([first, second], minlength=3)
        found = math.exp(pitman_yor.joint_log_prob(LOGITS[None], counts[None], alpha))
        assert found == pytest.approx(
            alpha * w[first] * w[second] + (1 - alpha) * w[first] * (first == second), rel=1e-5
        )


@pytest.mark.parametrize("alpha", [1e-3, 0.4, 1.0])
@pytest.mark.parametrize("n", [1, 5])
def test_probabilities_of_all_labelings_sum_to_one(alpha, n):
    multisets = [c for c in itertools.product(range(n + 1), repeat=3) if sum(c) == n]
    orders = [math.factorial(n) / math.prod(map(math.factorial, c)) for c in multisets]
    log_prob = jax.jit(jax.vmap(lambda c: pitman_yor.counts_log_prob(LOGITS, c, jnp.asarray(alpha), n)))
    assert np.exp(log_prob(jnp.asarray(multisets))) @ np.array(orders) == pytest.approx(1, abs=1e-5)


def test_labels_of_one_class_are_a_special_case_and_anchors_multiply():
    log_w = jax.nn.log_softmax(LOGITS)[1]
    repeats = pitman_yor.repeat_log_probs(log_w, jnp.asarray(0.3), 12)
    counts = jnp.asarray([[0, 7, 0], [0, 12, 0], [0, 0, 0]])
    found = pitman_yor.joint_log_prob(jnp.tile(LOGITS, (3, 1)), counts, 0.3)
    assert found == pytest.approx(float(repeats[7] + repeats[12]), abs=1e-4)


def test_at_one_labels_are_independent_and_toward_zero_they_repeat():
    log_w = float(jax.nn.log_softmax(LOGITS)[2])
    at_one = pitman_yor.repeat_log_probs(jnp.asarray(log_w), jnp.asarray(1.0), 20)
    np.testing.assert_allclose(at_one, log_w * np.arange(21), rtol=1e-6, atol=1e-6)
    mixed = pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[3, 1, 2]]), 1.0)
    assert mixed == pytest.approx(float(jnp.asarray([3.0, 1.0, 2.0]) @ jax.nn.log_softmax(LOGITS)), rel=1e-5)
    toward_zero = pitman_yor.repeat_log_probs(jnp.asarray(log_w), jnp.asarray(1e-3), 20)
    np.testing.assert_allclose(toward_zero[1:], log_w, atol=0.005)


def test_gradients_in_alpha_are_those_of_differences():
    def value(alpha):
        counts = jnp.asarray([[4, 1, 0], [0, 2, 3]])
        logits = jnp.asarray(np.asarray(LOGITS), dtype=alpha.dtype)
        return sum(pitman_yor.counts_log_prob(logits, c, alpha, 5) for c in counts)

    with jax.enable_x64(True):
        for alpha in (0.01, 0.5, 0.99):
            slope = jax.grad(value)(jnp.asarray(alpha))
            step = 1e-5
            difference = value(jnp.asarray(alpha + step)) - value(jnp.asarray(alpha - step))
            assert float(slope) == pytest.approx(float(difference) / (2 * step), rel=1e-4)
    assert jnp.isfinite(jax.grad(value)(jnp.asarray(1.0)))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_average_prediction_is_that_of_the_base(alpha, getkey):
    probs = jax.nn.softmax(LOGITS[None] / alpha + draws(alpha, 200_000, 3, getkey()))
    error = (jnp.mean(probs, axis=0) - jax.nn.softmax(LOGITS)) / (jnp.std(probs, axis=0) / math.sqrt(200_000))
    # Five standard errors: less than one false alarm in a million.
    assert jnp.max(jnp.abs(error)) < 5


def test_wrong_power_is_found(getkey):
    # The test above has power: noise of another alpha does not keep the prediction.
    probs = jax.nn.softmax(LOGITS[None] / 0.5 + draws(0.6, 200_000, 3, getkey()))
    error = (jnp.mean(probs, axis=0) - jax.nn.softmax(LOGITS)) / (jnp.std(probs, axis=0) / math.sqrt(200_000))
    assert jnp.max(jnp.abs(error)) > 10


@pytest.mark.parametrize("alpha", [0.2, 0.8])
def test_urn_is_what_simulation_gives(alpha, getkey):
    log_p = jax.nn.log_softmax(LOGITS[None] / alpha + draws(alpha, 200_000, 3, getkey()))
    for counts in ([10, 0, 0], [3, 2, 0], [1, 1, 1]):
        values = jnp.exp(log_p @ jnp.asarray(counts, dtype=float))
        expected = math.exp(pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([counts]), alpha))
        assert abs(float(jnp.mean(values)) - expected) < 5 * float(jnp.std(values)) / math.sqrt(200_000)


def test_laplace_transform_of_the_noise(getkey):
    values = jnp.exp(-jnp.exp(draws(0.3, 200_000, 1, getkey())))
    assert float(jnp.mean(values)) == pytest.approx(math.exp(-1), abs=5 * float(jnp.std(values)) / math.sqrt(200_000))


@pytest.mark.parametrize("alpha", [1e-3, 0.02, 0.5, 1.0])
def test_noise_is_finite_in_the_tails_with_finite_gradients(alpha):
    grid = jnp.asarray([-60.0, -12.0, -9.0, -5.0, -1.0, 0.0, 1.0, 5.0, 9.0, 12.0, 60.0])
    g1, g2 = (g.reshape(-1) for g in jnp.meshgrid(grid, grid))
    noise = ft.partial(jax.jit(pitman_yor.log_stable))
    assert bool(jnp.all(jnp.isfinite(noise(jnp.asarray(alpha), g1, g2))))
    slopes = jax.jit(jax.vmap(jax.grad(pitman_yor.log_stable, argnums=(0, 1, 2)), in_axes=(None, 0, 0)))
    assert all(bool(jnp.all(jnp.isfinite(slope))) for slope in slopes(jnp.asarray(alpha), g1, g2))
    if alpha == 1.0:
        assert not jnp.any(noise(jnp.asarray(alpha), g1, g2))


@pytest.mark.parametrize("alpha", [0.02, 0.3])
def test_noise_in_single_precision_is_that_of_double(alpha):
    grid = np.linspace(-9, 9, 37)
    g1, g2 = (g.reshape(-1) for g in np.meshgrid(grid, grid))
    single = np.asarray(
        pitman_yor.log_stable(jnp.asarray(alpha), jnp.asarray(g1, jnp.float32), jnp.asarray(g2, jnp.float32))
    )
    with jax.enable_x64(True):
        alpha64 = jnp.asarray(np.float64(np.float32(alpha)))
        double = np.asarray(pitman_yor.log_stable(alpha64, jnp.asarray(g1), jnp.asarray(g2)))
    np.testing.assert_allclose(single, double, rtol=2e-5, atol=1e-4)


def gaussian_weights(step):
    """Return points of a quadrature over a standard normal variable, with their weights."""
    grid = np.arange(-8.0, 8.0 + step / 2, step)
    return grid, step * np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("alpha", [0.02, 0.3, 0.8])
def test_quantile_of_the_noise_is_that_of_its_formula(alpha):
    grid, weights = gaussian_weights(0.02)
    g = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 3.5])
    with jax.enable_x64(True):
        share = jnp.asarray(alpha)
        # At this value of the second variable the exponential variable W is one, and its power drops out.
        points = jnp.asarray(grid)
        noise = np.asarray(pitman_yor.log_stable(share, points, jnp.full_like(points, -0.33747496376420244)))
        quantiles = np.asarray(pitman_yor.log_stable_quantile(share, jnp.asarray(g)))
    # Given the angle, S is below s where W is above a known value, with the probability exp(-value).
    values = np.exp((noise[None, :] - quantiles[:, None]) * alpha / (1 - alpha))
    expected = [0.5 * math.erfc(-value / math.sqrt(2)) for value in g]
    np.testing.assert_allclose(np.exp(-values) @ weights, expected, atol=1e-4)


@pytest.mark.parametrize(("alpha", "tolerance"), [(0.02, 2e-6), (0.1, 2e-6), (0.5, 2e-6), (0.93, 2e-5), (0.99, 5e-5)])
def test_quantiles_keep_predictions(alpha, tolerance):
    grid, weights = gaussian_weights(0.05)
    with jax.enable_x64(True):
        noise = np.asarray(pitman_yor.log_stable_quantile(alpha, jnp.asarray(grid)))
    for logit in (0.5, 2.0, 5.0):
        outputs = logit / alpha + noise[:, None] - noise[None, :]
        found = weights @ (0.5 * (1 + np.tanh(outputs / 2))) @ weights
        assert found == pytest.approx(1 / (1 + math.exp(-logit)), abs=tolerance)


@pytest.mark.parametrize("alpha", [1e-3, 0.02, 0.5, 0.999, 1.0])
def test_quantile_is_finite_in_the_tails_with_finite_gradients(alpha):
    g = jnp.asarray([-90.0, -8.0, -5.0, 0.0, 5.0, 8.0, 90.0])
    share = jnp.asarray(alpha)
    values, slope = jax.jit(jax.value_and_grad(lambda alpha: jnp.sum(series_noise(noise_series(alpha), g))))(share)
    assert bool(jnp.isfinite(values)) and bool(jnp.isfinite(slope))
    noise = pitman_yor.log_stable_quantile(share, g)
    assert bool(jnp.all(jnp.isfinite(noise))) and noise.dtype == jnp.float32
    if alpha == 1.0:
        assert not jnp.any(noise)
    elif alpha < 0.9:
        assert bool(jnp.all(jnp.diff(noise[1:-1]) > 0))


@pytest.fixture
def network(getkey):
    return MLP(3, 4, (16,), key=getkey())


def test_sampled_and_exact_agree_as_the_length_scale_vanishes(network, getkey):
    x, y = 2 * jr.normal(getkey(), (8, 3)), jnp.asarray([0, 1, 2, 3, 0, 1, 2, 3])
    enn = pitman_yor.attach(network, x, alpha=0.5, length_scale=1e-3, num_frequencies=200, key=getkey())
    exact = pitman_yor.log_losses(enn, x, y, tau=3)
    sampled = epi.metrics.log_losses(enn, x, y, epi.Draws.sample(enn.index, 4000, key=getkey(), chunk_size=500), tau=3)
    np.testing.assert_allclose(sampled.marginal.values, exact.marginal.values, atol=0.1)
    np.testing.assert_allclose(sampled.joint.values, exact.joint.values, atol=0.25)
    # With a long reach the anchors of a pair are no longer independent.
    far = enn.with_parameters(length_scale=100.0)
    dependent = epi.metrics.log_losses(
        far, x, y, epi.Draws.sample(far.index, 4000, key=getkey(), chunk_size=500), tau=3
    )
    assert jnp.max(jnp.abs(dependent.joint.values - exact.joint.values)) > 0.25
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


def test_joint_log_prob_says_what_is_wrong(as_user):
    with pytest.raises(ValueError, match="`counts` must not be negative; got -1"):
        pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[0, -1, 2]]), 0.3)
    with pytest.raises(ValueError, match="`counts` must have the shape"):
        pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[0, 2]]), 0.3)
    with pytest.raises(ValueError, match="`logits` must be finite"):
        pitman_yor.joint_log_prob(jnp.asarray([[0.0, -jnp.inf]]), jnp.asarray([[1, 1]]), 0.3)
    with pytest.raises(ValueError, match="`alpha` must be a number or one per anchor"):
        pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[0, 2, 0]]), jnp.asarray([0.3, 0.4]))
