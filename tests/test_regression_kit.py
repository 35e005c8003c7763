"""Intervals and coverage of regressions: quantiles of mixtures in closed form, and shares that are counted."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Table
from scipy import optimize, stats

from epinet_eqx import Draws
from epinet_eqx.bayes import Deterministic
from epinet_eqx.combinators import WithNoiseNetwork
from epinet_eqx.likelihoods import Bernoulli, Categorical, Gaussian, LearnedGaussian, Poisson
from epinet_eqx.losses import LogLoss
from epinet_eqx.metrics import coverage
from epinet_eqx.networks import MLP, FunctionNetwork
from epinet_eqx.predict import interval
from epinet_eqx.training import fit

pytestmark = pytest.mark.once

# Mean and scale of three particles for four inputs and two targets, in double precision.
RNG = np.random.Generator(np.random.Philox(key=3))
MEANS = 3 * RNG.normal(size=(3, 4, 2)) + np.array([0.0, 50.0])
SCALES = np.exp(RNG.normal(size=(3, 4, 2)))
VECTOR = np.array([0.5, 2.0])

# Outputs, the likelihood, and means and scales of the mixture's normal distributions.
NORMAL = {
    "one scale": (MEANS, Gaussian(0.7), np.full_like(MEANS, 0.7)),
    "a scale per target": (MEANS, Gaussian(jnp.asarray(VECTOR, dtype=float)), np.broadcast_to(VECTOR, MEANS.shape)),
    "learned": (np.concatenate([MEANS, np.log(SCALES)], axis=-1), LearnedGaussian(), SCALES),
    # The distance of the means tells nothing about the width here.
    "one particle": (MEANS[:1], Gaussian(1e3), np.full_like(MEANS[:1], 1e3)),
    "narrow": (MEANS[:1], Gaussian(1e-3), np.full_like(MEANS[:1], 1e-3)),
}


def quantile(means, scales, prob):
    """Return the quantile of a mixture of normal distributions by SciPy."""
    ends = stats.norm.ppf(prob, means, scales)
    if ends.min() == ends.max():
        return ends.min()
    return optimize.brentq(
        lambda y: stats.norm.cdf(y, means, scales).mean() - prob, ends.min() - 1, ends.max() + 1, xtol=1e-10
    )


@pytest.mark.parametrize("name", NORMAL)
@pytest.mark.parametrize("level", [0.5, 0.99])
def test_ends_are_the_quantiles_of_the_mixture(name, level):
    outputs, likelihood, scales = NORMAL[name]
    table = Table(outputs)
    found = interval(table, jnp.arange(4), Draws.all(table.index), likelihood=likelihood, level=level)
    means = outputs[..., :2]
    for prob, ends in (((1 - level) / 2, found.lower), ((1 + level) / 2, found.upper)):
        expected = [[quantile(means[:, n, t], scales[:, n, t], prob) for t in range(2)] for n in range(4)]
        np.testing.assert_allclose(ends, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(found.width, found.upper - found.lower)
    assert found.level == level


def test_batches_of_inputs_do_not_matter():
    outputs, likelihood, _ = NORMAL["learned"]
    table = Table(outputs)
    at_once, in_parts = (
        interval(table, jnp.arange(4), Draws.all(table.index, batch_size=size, chunk_size=2), likelihood=likelihood)
        for size in (4, 3)
    )
    np.testing.assert_allclose(at_once.lower, in_parts.lower, rtol=1e-5)


def test_intervals_of_counts_are_whole_and_the_shortest_that_suffice():
    rates = np.array([[[0.02], [3.0], [40.0]], [[0.3], [5.0], [90.0]]])
    table = Table(np.log(rates))
    found = interval(table, jnp.arange(3), Draws.all(table.index), likelihood=Poisson(), level=0.9)
    counts = np.arange(300)
    cdf = stats.poisson.cdf(counts, rates).mean(axis=0)
    np.testing.assert_array_equal(found.lower[:, 0], [counts[row >= 0.05][0] for row in cdf])
    np.testing.assert_array_equal(found.upper[:, 0], [counts[row >= 0.95][0] for row in cdf])


@pytest.mark.parametrize("name", ["a scale per target", "learned", "counts"])
def test_coverage_counts_the_targets_within_the_intervals(name):
    if name == "counts":
        outputs, likelihood = 2 + 0.3 * RNG.normal(size=(3, 200, 2)), Poisson()
        y = RNG.poisson(np.exp(2.0), size=(200, 2)).astype(np.float32)
    else:
        _, likelihood, _ = NORMAL[name]
        outputs = RNG.normal(size=(3, 200, 2 if name != "learned" else 4))
        y = 2 * RNG.normal(size=(200, 2)).astype(np.float32)
    table = Table(outputs)
    x, draws, levels = jnp.arange(200), Draws.all(table.index), (0.3, 0.8)
    found = coverage(table, x, y, draws, likelihood=likelihood, levels=levels)
    for number, level in enumerate(levels):
        ends = interval(table, x, draws, likelihood=likelihood, level=level)
        within = (y >= ends.lower) & (y <= ends.upper)
        shares = np.asarray(within).mean(axis=1)
        np.testing.assert_allclose(found.observed.mean[number], shares.mean(), atol=1e-6)
        np.testing.assert_allclose(found.observed.standard_error[number], shares.std(ddof=1) / 200**0.5, rtol=1e-4)
    assert str(found).splitlines()[0].startswith("30 % interval: ")


def test_the_truth_covers_what_it_says():
    means, scale = 3 * RNG.normal(size=(1, 20_000, 1)), 0.4
    y = (means[0] + scale * RNG.normal(size=(20_000, 1))).astype(np.float32)
    table = Table(means)
    found = coverage(table, jnp.arange(20_000), y, Draws.all(table.index), likelihood=Gaussian(scale)).observed
    np.testing.assert_allclose(found.mean, [0.5, 0.8, 0.9, 0.95], atol=4 * 0.5 / 20_000**0.5)


def test_a_network_of_the_noise_learns_where_it_is_large(getkey):
    x = jr.uniform(getkey(), (2000, 1), minval=-1.0, maxval=1.0)
    scale = jnp.exp(x)
    y = scale * jr.normal(getkey(), (2000, 1))
    means = Deterministic(FunctionNetwork(lambda x: (jnp.zeros(1), x)))
    noise = MLP(1, 1, (), key=getkey())
    enn = WithNoiseNetwork(means, noise)
    trained = fit(enn, (x, y), LogLoss(LearnedGaussian()), num_steps=1500, progress=False, key=getkey()).enn
    outputs = trained(jnp.array([0.5]), means.index.support()[0])
    np.testing.assert_allclose(outputs, [0.0, 0.5], atol=0.1)


@pytest.mark.usefixtures("as_user")
def test_bad_input_is_named():
    table = Table(MEANS)
    x, y, draws = jnp.arange(4), jnp.zeros((4, 2)), Draws.all(table.index)
    cases = [
        (lambda: interval(table, x, draws, likelihood=Gaussian(1.0), level=1.0), "`level` must be between 0 and 1"),
        (lambda: interval(table, x, draws, likelihood=Bernoulli()), "one of numbers.* for an interval; got Bernoulli"),
        (
            lambda: interval(table, x, draws, likelihood=Gaussian(jnp.ones(3))),
            r"`scale` must have shape \(2,\); got \(3,\)",
        ),
        (lambda: coverage(table, x, y, draws, likelihood=Categorical()), "one of numbers.*; got Categorical"),
        (lambda: coverage(table, x, y[:, :1], draws, likelihood=Gaussian(1.0)), "`y` must hold 2 floating-point"),
        (
            lambda: coverage(table, x, y, draws, likelihood=Gaussian(1.0), levels=(95,)),
            "`levels` must be between 0 and 1",
        ),
        (lambda: Gaussian(jnp.array([1.0, 0.0])), "`scale` must be finite and at least 1e-12 everywhere"),
        (lambda: Gaussian(jnp.ones((1, 2))), r"`scale` must be a number, or a vector .*; got shape \(1, 2\)"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("rate", [3.0, 250.0, 400.0, 1e4, 1e6, 1e8])
def test_poisson_probabilities_of_large_counts(rate):
    """In single precision the series of the incomplete gamma function is off by almost 1 at a million."""
    counts = np.unique(np.floor(np.maximum(rate + np.linspace(-4, 4, 9) * np.sqrt(rate), 0)))
    counts = np.append(counts, [0.0, 1e9])
    output = np.float32(np.log(rate))
    found = Poisson().cdf(jnp.full(counts.size, output), jnp.asarray(counts, dtype=float))
    # The rate and the counts as single precision has them.
    expected = stats.poisson.cdf(counts.astype(np.float32).astype(float), float(np.exp(jnp.asarray(output))))
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("rate", [0.05, 3.0, 40.0, 1e4, 1e6])
def test_poisson_log_probabilities_of_large_counts(rate):
    """In single precision the plain sum of its three terms is off by one nat at a million."""
    counts = np.unique(np.rint(np.maximum(rate + np.linspace(-4, 4, 9) * np.sqrt(rate), 0)))
    counts = np.append(counts, [0.0, 1.0, 29.0, 30.0])
    output = np.float32(np.log(rate))
    found = [Poisson().log_prob(jnp.asarray([output]), jnp.asarray([count], dtype=float)) for count in counts]
    expected = stats.poisson.logpmf(counts, np.exp(np.float64(output)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=5e-3)
