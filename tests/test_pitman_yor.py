"""The Pitman-Yor head: its closed forms against enumeration, its samples against the closed forms."""

import functools as ft
import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import pitman_yor
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


@pytest.mark.parametrize("alpha", [1e-3, 0.3, 1.0])
def test_a_thousand_mixed_labels_in_single_precision_are_those_in_double(alpha):
    counts = jnp.asarray([600, 300, 100])

    def value(alpha):
        logits = jnp.asarray(np.asarray(LOGITS), dtype=alpha.dtype)
        return pitman_yor.counts_log_prob(logits, counts, alpha, 1000)

    single, slope = jax.jit(jax.value_and_grad(value))(jnp.asarray(alpha))
    with jax.enable_x64(True):
        double = float(jax.jit(value)(jnp.asarray(np.float64(np.float32(alpha)))))
    assert single.dtype == jnp.float32 and jnp.isfinite(slope)
    assert float(single) == pytest.approx(double, rel=1e-5)
    if alpha == 1.0:
        assert double == pytest.approx(float(counts.astype(float) @ jax.nn.log_softmax(LOGITS)), rel=1e-5)


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


def test_joint_log_prob_says_what_is_wrong(as_user):
    with pytest.raises(ValueError, match="`counts` must not be negative; got -1"):
        pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[0, -1, 2]]), 0.3)
    with pytest.raises(ValueError, match="`counts` must have the shape"):
        pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[0, 2]]), 0.3)
    with pytest.raises(ValueError, match="`logits` must be finite"):
        pitman_yor.joint_log_prob(jnp.asarray([[0.0, -jnp.inf]]), jnp.asarray([[1, 1]]), 0.3)
    with pytest.raises(ValueError, match="`alpha` must be a number or one per anchor"):
        pitman_yor.joint_log_prob(LOGITS[None], jnp.asarray([[0, 2, 0]]), jnp.asarray([0.3, 0.4]))
