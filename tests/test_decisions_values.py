"""Values of candidates: acquisition functions and rewards of sets on joint samples, against closed forms."""

import functools
import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Linear, Table
from jax.scipy.stats import norm

from epinet_eqx import Draws
from epinet_eqx.decisions import (
    Improvement,
    choose_set,
    expected_improvement,
    holds_best,
    largest_outcome,
    optimality_probs,
    quantile_values,
    sample_values,
    set_reward,
)

pytestmark = pytest.mark.once


@pytest.fixture
def samples(getkey):
    """Return joint samples of four candidates, far outside the unit interval."""
    return 50 * jr.normal(getkey(), (30, 4)) - 20


def mask(number, chosen):
    return jnp.zeros(number, bool).at[jnp.array(chosen)].set(True)


def test_values_of_a_linear_function_are_gaussian_with_its_covariance(getkey):
    # f(x, z) = sum of w x z: the values at two inputs have the covariance of w x and w x'.
    enn = Linear(jnp.array([[1.0, -2.0]]))
    x = jnp.array([[1.0, 0.5], [2.0, 1.0], [0.0, 1.0]])
    values = sample_values(enn, x, Draws.sample(enn.index, 4000, key=getkey()))
    rows = np.array([[1.0, -1.0], [2.0, -2.0], [0.0, -2.0]])
    np.testing.assert_allclose(np.cov(values.T), rows @ rows.T, atol=0.5)
    # One index for all: the second input is twice the first in every sample.
    np.testing.assert_allclose(values[:, 1], 2 * values[:, 0], rtol=1e-5)
    improvement = expected_improvement(values, 1.0)
    scale = np.sqrt([2.0, 8.0, 4.0])
    exact = scale * norm.pdf(1 / scale) - norm.sf(1 / scale)
    np.testing.assert_allclose(improvement, exact, atol=0.12)
    np.testing.assert_allclose(quantile_values(values, 0.9), scale * norm.ppf(0.9), atol=0.2)
    # Each corner of the triangle of `rows` is the farthest along z with the angle that the corner lacks to pi.
    np.testing.assert_allclose(optimality_probs(values), [1 / 4, 3 / 8, 3 / 8], atol=4 * 0.5 / 4000**0.5)


def test_several_outputs_need_a_value(getkey):
    enn = Table(jr.normal(getkey(), (3, 2, 2)))
    with pytest.raises(ValueError, match="`value` must say how 2 outputs become one number"):
        sample_values(enn, jnp.arange(2), Draws.all(enn.index))
    values = sample_values(enn, jnp.arange(2), Draws.all(enn.index), value=lambda output: output[1] - output[0])
    np.testing.assert_allclose(values, enn.outputs[:, :, 1] - enn.outputs[:, :, 0])


def test_acquisition_functions_are_sums_over_samples(samples):
    values = np.asarray(samples, dtype=np.float64)
    np.testing.assert_allclose(
        expected_improvement(samples, 5.0), np.mean(np.maximum(values - 5, 0), axis=0), rtol=1e-5
    )
    shares = np.bincount(np.argmax(values, axis=1), minlength=4) / 30
    np.testing.assert_allclose(optimality_probs(samples), shares, rtol=1e-5)
    np.testing.assert_allclose(quantile_values(samples, 0.25), np.quantile(values, 0.25, axis=0), rtol=1e-4)
    assert optimality_probs(jnp.array([[1.0, 1.0, 0.0]])).tolist() == [0.5, 0.5, 0.0]


def test_rewards_of_sets_are_sums_over_samples(samples):
    values = np.asarray(samples, dtype=np.float64)
    for chosen in itertools.combinations(range(4), 2):
        largest = np.max(values[:, chosen], axis=1)
        of_set = functools.partial(set_reward, outcomes=samples, chosen=mask(4, chosen))
        np.testing.assert_allclose(of_set(largest_outcome), np.mean(largest), rtol=1e-4)
        np.testing.assert_allclose(of_set(Improvement(5.0)), np.mean(np.maximum(largest - 5, 0)), rtol=1e-4)
        np.testing.assert_allclose(of_set(holds_best), np.mean(largest == np.max(values, axis=1)), rtol=1e-5)
        quantile = functools.partial(jnp.quantile, q=0.25)
        np.testing.assert_allclose(of_set(largest_outcome, summary=quantile), np.quantile(largest, 0.25), rtol=1e-4)
    tied = set_reward(holds_best, jnp.array([[1.0, 1.0, 0.0]]), mask(3, [0]))
    assert float(tied) == 0.5
    assert float(set_reward(largest_outcome, jnp.array([[3, 7, 9]]), mask(3, [0, 1]))) == 7.0


def test_the_greedy_set_of_any_range_is_within_its_guarantee_and_shifts_with_the_outcomes(samples):
    # One candidate is the maximum of the reward itself, so greedy takes it first.
    first = choose_set(Improvement(5.0), samples, 1)
    assert int(first.positions[0]) == int(jnp.argmax(expected_improvement(samples, 5.0)))
    greedy = choose_set(Improvement(5.0), samples, 2)
    pairs = [
        float(set_reward(Improvement(5.0), samples, mask(4, pair))) for pair in itertools.combinations(range(4), 2)
    ]
    assert (1 - 1 / math.e) * max(pairs) <= float(greedy.rewards[-1]) <= max(pairs) * (1 + 1e-6)
    # Outcomes in other units: the same set, and its reward in these units.
    shifted = choose_set(Improvement(5.0 * 3 + 1), 3 * samples + 1, 2)
    assert shifted.positions.tolist() == greedy.positions.tolist()
    np.testing.assert_allclose(shifted.rewards, 3 * greedy.rewards, rtol=1e-4)
    # The probability of optimality adds up, so the greedy set is the best one.
    likely = choose_set(holds_best, samples, 3)
    np.testing.assert_allclose(likely.rewards[-1], 1 - jnp.min(optimality_probs(samples)), rtol=1e-5)


def test_a_careful_quantile_prefers_what_is_sure():
    # A gamble of mean 1.5 and a sure 1.
    values = jnp.stack([jnp.where(jnp.arange(20) % 2 == 0, 5.0, -2.0), jnp.ones(20)], axis=1)
    assert choose_set(largest_outcome, values, 1).positions.tolist() == [0]
    careful = choose_set(largest_outcome, values, 1, summary=functools.partial(jnp.quantile, q=0.1))
    assert careful.positions.tolist() == [1] and float(careful.rewards[0]) == 1.0


def test_bad_values_are_named():
    with pytest.raises(ValueError, match="`values` must have shape .samples, candidates. and not be empty"):
        optimality_probs(jnp.zeros((0, 3)))
    with pytest.raises(ValueError, match="`values` must be finite; got 1 non-finite of 2 values"):
        expected_improvement(jnp.array([[0.0, jnp.nan]]), 0.0)
    with pytest.raises(ValueError, match="`best` must be finite; got nan"):
        expected_improvement(jnp.zeros((1, 2)), float("nan"))
    with pytest.raises(ValueError, match="`best` must be finite"):
        Improvement(float("inf"))
    with pytest.raises(ValueError, match="`q` must be from 0 to 1; got 1.5"):
        quantile_values(jnp.zeros((1, 2)), 1.5)
    with pytest.raises(RuntimeError, match="must be finite"):
        eqx.filter_jit(lambda y: choose_set(lambda y, chosen: 1 / y[0], y, 1))(
            jnp.zeros((2, 2))
        ).rewards.block_until_ready()
