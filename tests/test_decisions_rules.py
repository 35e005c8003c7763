"""Rules of choice against closed forms: what each does with coherent samples of rewards."""

import math
from statistics import NormalDist

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.bandits import (
    EpsilonGreedy,
    Greedy,
    InformationDirectedSampling,
    ThompsonSampling,
    UpperConfidenceBound,
    action_values,
)

pytestmark = pytest.mark.once

RULES = [ThompsonSampling(), UpperConfidenceBound(0.9), Greedy(), EpsilonGreedy(0.1), InformationDirectedSampling()]


@eqx.filter_jit
def probs_of(rule, rewards):
    return rule.probs(rewards)


def two_arms(key, num_samples):
    """Return samples of a correlated Gaussian posterior of two arms, and the probability that the first is better."""
    mean, scale, mix = jnp.array([0.3, 0.0]), jnp.array([0.5, 1.0]), 0.9
    z = jr.normal(key, (num_samples, 2))
    z = z.at[:, 1].set(mix * z[:, 0] + math.sqrt(1 - mix**2) * z[:, 1])
    spread = math.sqrt(0.5**2 + 1.0**2 - 2 * mix * 0.5 * 1.0)
    return mean[None, :] + z * scale[None, :], NormalDist().cdf(0.3 / spread)


def test_thompson_frequencies_are_the_probabilities_of_being_best(getkey):
    samples, best = two_arms(getkey(), 2000)
    tolerance = 4 * math.sqrt(best * (1 - best) / 2000)
    # All samples at once, and one sample per decision.
    assert abs(float(probs_of(ThompsonSampling(), samples)[0]) - best) < tolerance
    act = jax.jit(jax.vmap(lambda rewards, key: ThompsonSampling()(rewards[None, :], key=key)))
    actions = act(samples, jr.split(getkey(), 2000))
    assert abs(float(jnp.mean(actions == 0)) - best) < tolerance


def test_correlation_of_the_arms_matters_to_thompson_sampling(getkey):
    samples, best = two_arms(getkey(), 2000)
    # The same marginals, but independent: another probability of being best.
    apart = jr.permutation(getkey(), samples, axis=0, independent=True)
    independent = NormalDist().cdf(0.3 / math.sqrt(0.5**2 + 1.0**2))
    assert best - independent > 0.08
    assert abs(float(probs_of(ThompsonSampling(), apart)[0]) - independent) < 4 * math.sqrt(0.24 / 2000)


def test_quantiles_are_monotone_and_go_from_the_smallest_to_the_largest_sample(getkey):
    rewards = jr.normal(getkey(), (21, 5))
    bounds = jax.jit(jax.vmap(lambda q: UpperConfidenceBound(q).bounds(rewards)))(jnp.array([0.0, 0.3, 0.5, 0.9, 1.0]))
    assert bool(jnp.all(jnp.diff(bounds, axis=0) >= 0))
    np.testing.assert_allclose(bounds[0], np.min(rewards, axis=0))
    np.testing.assert_allclose(bounds[2], np.median(rewards, axis=0), rtol=1e-6)
    np.testing.assert_allclose(bounds[-1], np.max(rewards, axis=0))


def test_an_uncertain_arm_is_chosen_for_its_upper_bound_and_not_by_the_greedy_rule():
    rewards = jnp.array([[0.5, 0.0], [0.5, 0.4], [0.5, 0.8]])
    assert probs_of(UpperConfidenceBound(0.95), rewards).tolist() == [0.0, 1.0]
    assert probs_of(Greedy(), rewards).tolist() == [1.0, 0.0]
    np.testing.assert_allclose(probs_of(EpsilonGreedy(0.2), rewards), [0.9, 0.1], rtol=1e-6)
    np.testing.assert_allclose(probs_of(EpsilonGreedy(1.0), rewards), [0.5, 0.5])


def needles():
    """Return ten equally likely cases: arm k pays in case k only, and arm 10, never the best, halves the cases."""
    revealing = jnp.where(jnp.arange(10) < 5, 0.99, 0.0)
    return jnp.concatenate([jnp.eye(10), revealing[:, None]], axis=1)


def test_what_actions_cost_and_teach_in_closed_form():
    regret, information = jax.jit(action_values)(needles())
    np.testing.assert_allclose(regret, [0.9] * 10 + [1 - 0.99 / 2], rtol=1e-5)
    np.testing.assert_allclose(information, [0.09] * 10 + [0.99**2 / 4], rtol=1e-5)


def test_information_directed_sampling_takes_the_arm_that_tells_and_is_never_the_best():
    assert probs_of(InformationDirectedSampling(), needles()).tolist() == [0.0] * 10 + [1.0]
    assert float(probs_of(ThompsonSampling(), needles())[10]) == 0.0


def test_information_directed_sampling_minimizes_its_ratio(getkey):
    rewards = jr.normal(getkey(), (30, 4))
    regret, information = map(np.asarray, jax.jit(action_values)(rewards))
    probs = np.asarray(probs_of(InformationDirectedSampling(), rewards))
    np.testing.assert_allclose(np.sum(probs), 1.0, rtol=1e-6)
    assert np.sum(probs > 0) <= 2

    def ratio(mixtures):
        return (mixtures @ regret) ** 2 / (mixtures @ information)

    # No mixture of all actions is better, and the best of a fine grid over pairs is as good.
    weights = np.asarray(jr.exponential(getkey(), (3000, 4))) ** 3
    assert ratio(probs) <= np.min(ratio(weights / np.sum(weights, axis=1, keepdims=True))) * (1 + 1e-5)
    share, eye = np.linspace(0, 1, 201)[:, None], np.eye(4)
    pairs = [np.min(ratio(share * eye[a] + (1 - share) * eye[b])) for a in range(4) for b in range(a)]
    np.testing.assert_allclose(ratio(probs), min(pairs), rtol=1e-3)


@pytest.mark.parametrize("rule", RULES)
def test_without_uncertainty_every_rule_knows_the_best(rule):
    rewards = jnp.tile(jnp.array([[0.1, 0.9, 0.9, 0.3]]), (6, 1))
    probs = np.asarray(probs_of(rule, rewards))
    np.testing.assert_allclose(np.sum(probs), 1.0, rtol=1e-6)
    if isinstance(rule, EpsilonGreedy):
        np.testing.assert_allclose(probs, [0.025, 0.475, 0.475, 0.025], rtol=1e-6)
    else:
        assert probs[1] + probs[2] == 1
    # What is not a number is not taken for a choice.
    assert np.all(np.isnan(probs_of(rule, rewards.at[0, 0].set(jnp.nan))))


def test_sweeping_a_scalar_of_a_rule_compiles_once():
    traces = []

    @eqx.filter_jit
    def probs(rule, rewards):
        traces.append(rule)
        return rule.probs(rewards)

    found = [float(probs(EpsilonGreedy(epsilon), jnp.array([[0.0, 1.0]]))[0]) for epsilon in (0.2, 0.4, 0.8)]
    np.testing.assert_allclose(found, [0.1, 0.2, 0.4], rtol=1e-6)
    assert len(traces) == 1


def test_bad_rules_and_samples_are_named(getkey, as_user):
    with pytest.raises(ValueError, match="`quantile` must be from 0 to 1; got 1.5"):
        UpperConfidenceBound(1.5)
    with pytest.raises(ValueError, match="`epsilon` must be from 0 to 1; got -0.1"):
        EpsilonGreedy(-0.1)
    with pytest.raises(ValueError, match="`num_samples` must be a positive integer; got 0"):
        ThompsonSampling(0)
    with pytest.raises(ValueError, match="`rewards` must have shape .samples, actions. and not be empty"):
        Greedy()(jnp.zeros(3), key=getkey())
    with pytest.raises(ValueError, match="`rewards` must be finite"):
        Greedy()(jnp.full((2, 3), jnp.nan), key=getkey())
