"""Dyadic joint log-losses against enumeration, and the identities that hold for every ENN."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Linear, Table

from epinet_eqx import Draws
from epinet_eqx._counts import average_cases, count_log_probs, dyadic_cases
from epinet_eqx.likelihoods import Gaussian
from epinet_eqx.metrics import (
    dyadic_log_loss,
    joint_log_loss,
    log_losses,
    marginal_log_loss,
    sampled_dyadic_log_loss,
)
from epinet_eqx.predict import joint_log_prob, joint_log_probs

pytestmark = pytest.mark.once


def close(a, b, atol=1e-5):
    return np.allclose(a, b, rtol=1e-5, atol=atol)


@pytest.fixture
def table(getkey):
    return Table(2 * jr.normal(getkey(), (5, 6, 3)))


X, Y = jnp.arange(6), jnp.array([0, 2, 1, 1, 0, 2])


@pytest.mark.parametrize("tau", [1, 2, 5])
def test_exact_average_equals_enumeration(table, tau):
    log_p = np.asarray(jax.nn.log_softmax(table.outputs)[:, X, Y]).reshape(5, 3, 2)
    # All 2 ** tau ways in which the draws can fall on the anchors of a pair.
    allocations = np.array(list(itertools.product(range(2), repeat=tau)))
    joint = log_p[:, :, allocations].sum(axis=-1)
    losses = -np.log(np.exp(joint).mean(axis=0)).mean(axis=-1)
    found = dyadic_log_loss(table, X, Y, Draws.all(table.index), tau=tau)
    assert close(found.values, losses)
    assert close(found.mean, losses.mean()) and close(found.standard_error, losses.std(ddof=1) / np.sqrt(3))
    assert (found.num_samples, found.tau, found.exact) == (5, tau, True)
    if tau == 1:
        assert close(found.mean, marginal_log_loss(table, X, Y, Draws.all(table.index)).mean)


def test_one_index_makes_joint_loss_tau_times_marginal(getkey):
    table = Table(jr.normal(getkey(), (1, 6, 3)))
    losses = log_losses(table, X, Y, Draws.all(table.index), tau=7)
    assert close(losses.joint.mean, 7 * losses.marginal.mean)
    assert close(losses.joint.per_label, losses.marginal.mean)


def test_confident_predictions_have_finite_losses():
    # Pitfall 1: a logit gap of 120 is a loss of 120, and of 1200 for ten labels.
    table = Table([[[120.0, 0.0], [0.0, -120.0]]])
    losses = log_losses(table, jnp.arange(2), jnp.ones(2, int), Draws.all(table.index), tau=10)
    assert close(losses.marginal.mean, 120) and close(losses.joint.mean, 1200) and close(losses.error.mean, 1)


def test_many_labels(table):
    # The weights of tau = 100 come from logarithms; the loss is at most that of independent labels.
    counts, weights = dyadic_cases(100)
    assert close(weights.sum(), 1) and close(weights @ counts, [50, 50], atol=1e-3)
    losses = log_losses(table, X, Y, Draws.all(table.index), tau=100)
    assert bool(jnp.isfinite(losses.joint.mean)) and losses.joint.mean < 100 * losses.marginal.mean


def test_impossible_labels_have_infinite_loss_and_no_nan():
    table = Table([[[0.0, 0.0], [0.0, -jnp.inf]], [[0.0, 0.0], [0.0, -jnp.inf]]])
    found = dyadic_log_loss(table, jnp.arange(2), jnp.array([1, 1]), Draws.all(table.index), tau=200)
    assert jnp.isposinf(found.mean) and jnp.isposinf(found.standard_error)
    # A weight that underflows does not turn the infinite term into NaN.
    assert jnp.isneginf(average_cases(jnp.array([1.0, 0.0]), jnp.array([[-1.0, -jnp.inf]])))[0]
    possible = dyadic_log_loss(table, jnp.arange(2), jnp.array([1, 0]), Draws.all(table.index), tau=4)
    assert close(possible.mean, 2 * np.log(2))


def test_sampled_average_converges_to_the_exact_one(table, getkey):
    exact = dyadic_log_loss(table, X, Y, Draws.all(table.index), tau=5)
    draws = 400
    found = sampled_dyadic_log_loss(table, X, Y, Draws.all(table.index), tau=5, num_draws=draws, key=getkey())
    # The error of the mean over the draws of a pair, from losses of single draws that vary by less than this.
    spread = np.ptp(-np.asarray(jax.nn.log_softmax(table.outputs)[:, X, Y])) * 5
    assert close(found.values, exact.values, atol=4 * spread / np.sqrt(12 * draws))
    assert not close(found.values, exact.values, atol=1e-6)


def test_sampled_anchors_of_any_number(table, getkey):
    # One anchor leaves nothing to chance: its label, tau times.
    key = getkey()
    one = sampled_dyadic_log_loss(table, X, Y, Draws.all(table.index), tau=3, num_anchors=1, key=key)
    same = joint_log_loss(table, jnp.repeat(X, 3), jnp.repeat(Y, 3), Draws.all(table.index), tau=3)
    assert close(one.values, same.values)
    three = sampled_dyadic_log_loss(table, X, Y, Draws.all(table.index), tau=3, num_anchors=3, num_draws=2, key=key)
    assert three.values.shape == (2,)
    # Batches of one group at a time see the same draws.
    split = sampled_dyadic_log_loss(
        table, X, Y, Draws.all(table.index, batch_size=3), tau=3, num_anchors=3, num_draws=2, key=key
    )
    assert close(split.values, three.values)


def test_groups_are_predicted_jointly_as_they_come(table):
    found = joint_log_loss(table, X, Y, Draws.all(table.index), tau=3)
    expected = [
        -joint_log_prob(table, X[start : start + 3], Y[start : start + 3], Draws.all(table.index)) for start in (0, 3)
    ]
    assert close(found.values, expected)


def test_exact_average_for_a_regression(getkey):
    # One pair, two labels: k of them at the first anchor. The joint density is Gaussian in closed form.
    x, y = jnp.array([[1.0, 0.0], [0.6, 0.8]]), jnp.array([0.5, -0.3])
    enn = Linear(jnp.ones((1, 2)))
    draws = Draws.sample(enn.index, 20_000, chunk_size=500, key=getkey())
    losses = log_losses(enn, x, y, draws, tau=2, likelihood=Gaussian(0.8))
    normal = jax.scipy.stats.multivariate_normal.logpdf
    expected = 0.0
    for rows, weight in (((0, 0), 0.25), ((0, 1), 0.5), ((1, 1), 0.25)):
        chosen = x[jnp.array(rows)]
        expected -= weight * normal(y[jnp.array(rows)], jnp.zeros(2), chosen @ chosen.T + 0.64 * jnp.eye(2))
    assert losses.error is None
    assert close(losses.joint.mean, expected, atol=0.03)


def test_outcomes_of_two_anchors_with_two_labels_by_counts(getkey):
    # What the Neural Testbed averages over: how often each (anchor, label) occurs among tau draws.
    table, tau = Table(jr.normal(getkey(), (4, 2, 2))), 3
    cases = [c for c in itertools.product(range(tau + 1), repeat=4) if sum(c) == tau]
    log_p = jax.nn.log_softmax(table.outputs).reshape(4, 4)
    draws = Draws.all(table.index, chunk_size=3)
    found = count_log_probs(lambda zs: log_p[zs], jnp.array(cases, dtype=float), draws)
    for case, value in zip(cases, found, strict=True):
        outcomes = np.repeat(np.arange(4), case)
        direct = joint_log_probs(table, jnp.asarray(outcomes // 2), Draws.all(table.index))
        assert close(value, direct[tuple(outcomes % 2)])
