"""Fitting the Pitman-Yor head: known parameters are found, what labels cannot tell is said, bad input is a sentence."""

import functools as ft
import pathlib
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import epinet_eqx as epi
from epinet_eqx import pitman_yor
from epinet_eqx.networks import FunctionNetwork
from epinet_eqx.pitman_yor import calibrate

pytestmark = pytest.mark.once

TEMPERATURE = 2.0


def make_base(x):
    """Return logits that are twice too sharp, and the input as features."""
    return TEMPERATURE * x, x


@ft.partial(jax.jit, static_argnames=("num_inputs", "num_labels"))
def simulate(alpha, num_inputs, num_labels, slope, key):
    """Return inputs, and counts of labels that are drawn from the head itself."""
    x_key, noise_key, label_key = jr.split(key, 3)
    x = 1.5 * jr.normal(x_key, (num_inputs, 3))
    share = jnp.clip(alpha + slope * jnp.sign(x[:, 0]), 0.01, 1.0)
    g1, g2 = jr.normal(noise_key, (2, num_inputs, 3))
    noise = jax.vmap(pitman_yor.log_stable)(share, g1, g2)
    logits = jax.nn.log_softmax(x) / share[:, None] + noise
    labels = jr.categorical(label_key, logits[:, None, :], shape=(num_inputs, num_labels))
    return x, jnp.sum(jax.nn.one_hot(labels, 3, dtype=int), axis=1)


def head(x, key):
    return pitman_yor.attach(FunctionNetwork(make_base), x, alpha=0.9, key=key)


def test_parameters_of_a_simulation_are_found_with_honest_errors(getkey):
    x, _ = simulate(0.4, 400, 5, 0.0, getkey())
    enn, scores = head(x, getkey()), []
    for _ in range(30):
        x, counts = simulate(0.4, 400, 5, 0.0, getkey())
        found = calibrate(enn, x, counts)
        assert found.is_identified
        scores.append(
            [
                (found.alpha - 0.4) / found.alpha_error,
                (found.temperature - TEMPERATURE) / found.temperature_error,
            ]
        )
    scores = np.array(scores)
    # Thirty standard normal scores each: these bounds are missed about once in ten thousand.
    spread = np.sqrt(np.mean(scores**2, axis=0))
    assert np.all(np.abs(scores) < 5) and np.all(spread > 0.55) and np.all(spread < 1.55), spread
    assert found.joint.mean < found.joint_before.mean and found.marginal.mean < found.marginal_before.mean
    assert found.enn.temperature.value == found.temperature
    exact = pitman_yor.joint_log_prob(x[:2] * TEMPERATURE / found.temperature, counts[:2], found.alpha)
    assert float(found.joint.values[0]) == pytest.approx(-float(exact), rel=1e-4)
    free = calibrate(enn, x, counts, hold_marginals=False)
    assert free.joint.mean <= found.joint.mean + 1e-5 and free.marginal.mean >= found.marginal.mean - 1e-5
    assert abs(free.alpha - 0.4) < 5 * free.alpha_error


def test_one_label_per_input_does_not_say_what_alpha_is(getkey):
    x, counts = simulate(0.4, 400, 1, 0.0, getkey())
    y = jnp.argmax(counts, axis=1)
    found = calibrate(head(x, getkey()), x, y)
    assert not found.is_identified and found.alpha < 0.005 and jnp.isinf(found.alpha_error)
    assert "`alpha` is at its lower end" in str(found)
    assert abs(found.temperature - TEMPERATURE) < 4.5 * found.temperature_error
    # The limit: the sum of the marginal losses of the two inputs.
    np.testing.assert_allclose(found.joint.values, 2 * found.marginal.values * (1 - 2**-10), rtol=0.02, atol=0.02)


def test_alpha_is_held_and_only_the_temperature_fitted(getkey):
    x, counts = simulate(0.4, 400, 5, 0.0, getkey())
    shares = pitman_yor.LogisticAlpha(jnp.asarray([1.0, 0.0, 0.0]), 0.0)
    for enn in (head(x, getkey()).with_parameters(alpha=0.4), head(x, getkey()).with_parameters(alpha=shares)):
        found, both = calibrate(enn, x, counts, hold_alpha=True), calibrate(enn, x, counts)
        assert eqx.tree_equal(found.enn.alpha, enn.alpha)
        # Where marginals are held, the temperature is the best for them whatever alpha.
        assert found.temperature == pytest.approx(float(both.temperature), rel=1e-3)
        assert found.temperature_error == pytest.approx(float(both.temperature_error), rel=1e-2)
        assert found.is_held and not both.is_held and ", as given" in str(found)
        free = calibrate(enn, x, counts, hold_alpha=True, hold_marginals=False)
        assert free.joint.mean <= found.joint.mean + 1e-5 and free.marginal.mean >= found.marginal.mean - 1e-5
        assert 0 < free.temperature_error < 0.5


def test_alpha_by_features_is_found_where_it_varies(getkey):
    x, counts = simulate(0.5, 1200, 6, 0.35, getkey())
    found = calibrate(head(x, getkey()), x, counts, by_features=True)
    alphas = jax.vmap(lambda x: found.enn.embed(x).alpha)(x)
    assert jnp.mean(alphas[x[:, 0] > 1]) > 0.65 and jnp.mean(alphas[x[:, 0] < -1]) < 0.35
    flat = calibrate(head(x, getkey()), x, counts)
    assert found.joint.mean < flat.joint.mean
    assert jnp.isfinite(found.alpha_error)


def test_probabilities_are_labels_that_are_drawn(getkey):
    x, _ = simulate(1.0, 200, 1, 0.0, getkey())
    # Everyone draws from the prediction itself: alpha is one.
    found = calibrate(head(x, getkey()), x, jax.nn.softmax(x), key=getkey())
    assert found.alpha > 0.9 and abs(found.temperature - TEMPERATURE) < 0.3


def test_example_of_the_page_about_the_metric_prints_what_it_shows(capsys):
    page = (pathlib.Path(__file__).parent.parent / "docs" / "concepts" / "metric.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "calibrate" in code)
    shown = page.partition(code)[2].partition("```text\n")[2].partition("```")[0]
    exec(code, {})
    printed = capsys.readouterr().out
    numbers = [[float(number) for number in re.findall(r"\d+\.\d+", text)] for text in (printed, shown)]
    np.testing.assert_allclose(*numbers, rtol=0.02)


@ft.partial(jax.jit, static_argnames="is_shared")
def simulate_pairs(is_shared, key):
    """Return pairs of inputs that are nearly the same, and labels whose noise the inputs of a pair share or not."""
    x_key, noise_key, label_key = jr.split(key, 3)
    x = 1.5 * jr.normal(x_key, (150, 1, 3)) + jnp.asarray([[[0.0], [0.01]]])
    g1, g2 = jr.normal(noise_key, (2, 150, 1 if is_shared else 2, 3))
    logits = jax.nn.log_softmax(x) / 0.4 + pitman_yor.log_stable(jnp.asarray(0.4), g1, g2)
    labels = jr.categorical(label_key, logits[:, :, None, :], shape=(150, 2, 5))
    return x.reshape(-1, 3), jnp.sum(jax.nn.one_hot(labels, 3, dtype=int), axis=2).reshape(-1, 3)


def test_length_scale_is_found_where_near_inputs_share_what_is_unknown(getkey):
    for is_shared in (True, False):
        x, counts = simulate_pairs(is_shared, getkey())
        enn = head(x, getkey())
        draws = epi.Draws.sample(enn.index, 500, key=getkey(), chunk_size=100)
        found = calibrate(enn, x, counts, draws=draws, length_scales=(1e-3, 0.3))
        assert found.enn.field.length_scale.value == found.length_scale == jnp.asarray(0.3 if is_shared else 1e-3)
        assert "pairs of near inputs gain" in str(found)
        if is_shared:
            assert found.gain.mean > 5 * found.gain.standard_error
        else:
            assert found.gain.mean < 5 * found.gain.standard_error


BAD = {
    "too few": ({"x": jnp.eye(3)[:2], "y": jnp.asarray([0, 1])}, "an even number of inputs, at least 80 to fit 2"),
    "negative": ({"y": -jnp.ones((100, 3), int)}, "`y` must not be negative; got -1"),
    "no second label": ({"y": jnp.tile(jnp.asarray([1, 0, 0]), (100, 1))}, "two of some; got from 1 to 1"),
    "no label": ({"y": jnp.zeros((100, 3), int)}, "at least one label of each input"),
    "sum": ({"y": jnp.full((100, 3), 0.5)}, "`y` must hold probabilities that sum to 1 for each input; got 1.5"),
    "no key": ({"y": jnp.full((100, 3), 1 / 3)}, "`key` must be given where `y` holds probabilities"),
    "shape": ({"y": jnp.zeros((100, 2))}, r"`y` must hold one label per input, \(100,\), or counts"),
    "not a class": ({"y": jnp.full(100, 7)}, "`y` must hold classes from 0 to 2"),
    "length scales": ({"length_scales": (0.1, -1.0)}, "`length_scales` must be a vector of positive numbers"),
    "held and fitted": ({"hold_alpha": True, "by_features": True}, "`by_features` must be False where `hold_alpha`"),
    "tau": ({"tau": 0}, "`tau` must be a positive integer"),
}


@pytest.mark.parametrize("name", BAD)
def test_calibrate_says_what_is_wrong(name, getkey, as_user):
    changed, message = BAD[name]
    x = jr.normal(getkey(), (100, 3))
    arguments = {"x": x, "y": jnp.zeros(100, int), **changed}
    with pytest.raises(ValueError, match=message):
        calibrate(head(x, getkey()), **arguments)


def test_calibrate_refuses_logits_that_are_not_finite(getkey, as_user):
    x = jr.normal(getkey(), (100, 3))
    enn = pitman_yor.attach(FunctionNetwork(lambda x: (jnp.where(x > 5, -jnp.inf, x), x)), x, key=getkey())
    with pytest.raises(ValueError, match="`logits` must be finite; got 1 non-finite"):
        calibrate(enn, x.at[7, 1].set(6.0), jnp.zeros(100, int))


def test_labels_without_a_best_temperature_are_refused(getkey):
    x = jr.normal(getkey(), (120, 3))
    enn = head(x, getkey())
    best, worst = np.argmax(x, axis=1), np.argmin(x, axis=1)
    for right in (best, 5 * np.eye(3, dtype=int)[best]):
        with pytest.raises(ValueError, match="`y` must hold a label that the base does not predict"):
            calibrate(enn, x, right)
    with pytest.raises(ValueError, match="`y` must hold labels that the base predicts better than chance.* got .* -"):
        calibrate(enn, x, worst)
