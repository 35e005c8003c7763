"""The KL divergences of the testbed against enumeration, sampling and direct formulas."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import Draws, named_keys
from epinet_eqx._counts import outcome_cases
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.networks import MLP
from epinet_eqx.testbed import (
    Problem,
    Setting,
    count_nonfinite,
    evaluate,
    exact_kl,
    given_kl,
    sampled_kl,
    stack_problems,
)
from epinet_eqx.testbed._kl import _draw_anchors

pytestmark = pytest.mark.once

SETTING = Setting(input_dim=2, data_ratio=2, temperature=0.5, seed=0, number=1)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Compile without optimization: many programs, each of which runs for a moment."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def problem(getkey):
    return Problem.generate(SETTING, key=getkey())


@pytest.fixture
def ensemble(getkey):
    particles = eqx.filter_vmap(lambda key: MLP(2, 2, (4,), key=key))(jr.split(getkey(), 3))
    return Ensemble(jax.tree.map(lambda leaf: 3 * leaf, particles))


def log_probs(enn, x):
    """Return the log-probabilities of all particles at inputs, of shape (particles, inputs, classes)."""
    return np.asarray(jax.nn.log_softmax(jax.vmap(enn.heads, in_axes=(0, None), out_axes=1)(x, jnp.arange(3))))


@pytest.mark.parametrize(("tau", "num_outcomes"), [(1, 4), (3, 4), (10, 4), (2, 6)])
def test_cases_are_all_sequences_of_outcomes(tau, num_outcomes):
    counts, log_orders = outcome_cases(tau, num_outcomes)
    assert len(counts) == math.comb(tau + num_outcomes - 1, num_outcomes - 1) == len(np.unique(counts, axis=0))
    np.testing.assert_array_equal(counts.sum(axis=1), tau)
    assert counts.min() >= 0
    np.testing.assert_allclose(np.exp(log_orders).sum(), num_outcomes**tau)


def test_exact_kl_is_the_sum_over_all_draws_and_labels(problem, ensemble, getkey):
    key = getkey()
    estimates = eqx.filter_jit(
        lambda: exact_kl(ensemble, problem, Draws.all(ensemble.index), taus=(1, 2, 3), num_batches=3, key=key)
    )()
    (anchor_key,) = named_keys(key, "anchors")
    anchors = _draw_anchors(2, 3, key=anchor_key)
    for batch in range(3):
        true = np.asarray(jax.nn.log_softmax(jax.vmap(problem.model)(anchors[batch])), dtype=float)
        predicted = log_probs(ensemble, anchors[batch]).astype(float)
        for tau in (1, 2, 3):
            total = 0.0
            for chosen in itertools.product(range(2), repeat=tau):
                for labels in itertools.product(range(2), repeat=tau):
                    log_p = sum(true[a, y] for a, y in zip(chosen, labels, strict=True))
                    products = sum(predicted[:, a, y] for a, y in zip(chosen, labels, strict=True))
                    total += math.exp(log_p) / 2**tau * (log_p - math.log(np.mean(np.exp(products))))
            np.testing.assert_allclose(estimates[tau].values[batch], total, atol=2e-5, rtol=1e-4)
    assert estimates[3].num_samples == 3 and estimates[3].exact and estimates[3].tau == 3


def test_sampled_kl_converges_to_the_exact_one(problem, ensemble, getkey):
    key = getkey()

    @eqx.filter_jit
    def both():
        draws, options = Draws.all(ensemble.index), dict(taus=(1, 10), num_batches=300, key=key)
        exact = exact_kl(ensemble, problem, draws, **options)
        return exact, sampled_kl(ensemble, problem, draws, num_draws=4, **options)

    exact, sampled = both()
    for tau in (1, 10):
        # The same anchors, so that what is left is the noise of draws and labels alone.
        difference = sampled[tau] - exact[tau]
        assert abs(float(difference.mean)) < 4 * float(difference.standard_error)
        assert float(difference.standard_error) < float(sampled[tau].standard_error)


def test_the_truth_has_no_divergence(problem, getkey):
    key, truth = getkey(), Deterministic(problem.model)

    @eqx.filter_jit
    def kl(estimator, draws):
        return estimator(truth, problem, draws, num_batches=20, key=key)

    exact, sampled = Draws.auto(truth.index, 7, key=key), Draws.sample(truth.index, 7, key=key)
    assert exact.exact and not sampled.exact
    for estimates in (kl(exact_kl, exact), kl(sampled_kl, sampled)):
        for estimate in estimates.values():
            np.testing.assert_allclose(estimate.values, 0, atol=2e-4)
    assert estimates[10].num_samples == 7


def test_given_batches_are_scored_by_the_formula(ensemble, getkey):
    x, y = jr.normal(getkey(), (4, 5, 2)), jr.bernoulli(getkey(), 0.5, (4, 5)).astype(jnp.int32)
    log_likelihoods = jnp.array([-1.0, -2.0, -3.0, -4.0])
    problem = Problem.from_arrays(x[0], y[0], x, y, log_likelihoods, temperature=0.1)
    problem = problem.with_tests(x[:, :1], y[:, :1], log_likelihoods / 5)
    estimates = given_kl(ensemble, problem, Draws.all(ensemble.index))
    assert set(estimates) == {5, 1}
    for tau, scale in ((5, 1), (1, 5)):
        log_p = log_probs(ensemble, x[:, :tau].reshape(-1, 2)).reshape(3, 4, tau, 2)
        chosen = np.take_along_axis(log_p, np.asarray(y[:, :tau])[None, :, :, None], axis=3)[..., 0]
        expected = log_likelihoods / scale - np.log(np.mean(np.exp(chosen.sum(axis=2)), axis=0))
        np.testing.assert_allclose(estimates[tau].values, expected, rtol=1e-5)
    # The stack finds the given batches by itself.
    enns = jax.tree.map(lambda leaf: leaf[None], ensemble)
    stacked = evaluate(enns, stack_problems([problem]), taus=(5,), num_samples=None, keys=getkey()[None])
    np.testing.assert_allclose(stacked[5].values[0], estimates[5].values, rtol=1e-5)
    with pytest.raises(ValueError, match="`taus` must be those of the given test batches, \\(5, 1\\); got 10"):
        given_kl(ensemble, problem, Draws.all(ensemble.index), taus=(10,))
    with pytest.raises(ValueError, match="`problem` must have a true model"):
        exact_kl(ensemble, problem, Draws.all(ensemble.index), key=getkey())


def test_failures_are_counted_and_not_averaged_over(problem, getkey):
    enns = eqx.filter_vmap(lambda key: Deterministic(MLP(2, 2, (4,), key=key)))(jr.split(getkey(), 3))
    # The second one is not a number, the third one excludes a class.
    bias = enns.network.layers[1].bias.at[1, 0].set(jnp.nan).at[2, 0].set(-jnp.inf)
    enns = eqx.tree_at(lambda enn: enn.network.layers[1].bias, enns, bias)
    problems = stack_problems([problem] * 3)
    keys = jr.split(getkey(), 3)
    estimates = evaluate(enns, problems, num_batches=6, keys=keys)
    for estimate in estimates.values():
        np.testing.assert_array_equal(count_nonfinite(estimate), [0, 6, 6])
        assert bool(jnp.isfinite(estimate.mean[0])) and not jnp.any(jnp.isfinite(estimate.mean[1:]))
        assert bool(jnp.isfinite(estimate.standard_error[0])) and bool(jnp.isinf(estimate.mean[2]))
    # A member of a stack is scored as it would be alone.
    first = jax.tree.map(lambda leaf: leaf[0], enns)
    alone = eqx.filter_jit(exact_kl)(first, problem, Draws.all(first.index), num_batches=6, key=keys[0])
    np.testing.assert_allclose(alone[10].values, estimates[10].values[0], rtol=1e-5)


def test_bad_requests_are_refused(problem, ensemble, getkey):
    with pytest.raises(ValueError, match="`taus` must give at most 1771 cases of 2 classes.*got tau = 21. Use"):
        exact_kl(ensemble, problem, Draws.all(ensemble.index), taus=(21,), key=getkey())
    with pytest.raises(ValueError, match="`taus` must hold at least one number .* and each once; got \\(1, 1\\)"):
        sampled_kl(ensemble, problem, Draws.all(ensemble.index), taus=(1, 1), key=getkey())
    with pytest.raises(ValueError, match="`problems` must be a stack"):
        evaluate(ensemble, problem, keys=getkey()[None])
    with pytest.raises(ValueError, match="`enns` must hold one ENN per problem, 1; got 3"):
        evaluate(ensemble, stack_problems([problem]), keys=getkey()[None])
