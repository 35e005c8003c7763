"""Decisions against closed forms, and the theorems of Appendix B on small problems."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import AbstractENN, Draws
from epinet_eqx.decisions import (
    best_actions,
    choice_probs,
    choose_action,
    expected_rewards,
    expected_rewards_from_samples,
    joint_kl,
    sample_labels,
    shortfall,
    shortfall_bound,
)
from epinet_eqx.indices import AbstractIndex, GaussianIndex

pytestmark = pytest.mark.once


class SignENN(AbstractENN):
    """Certain of class 1 where the index is positive, of class 0 where it is not."""

    index: AbstractIndex

    def embed(self, x):
        return jnp.array([-30.0, 30.0])

    def heads(self, embedding, zs):
        return jnp.sign(zs) * embedding[None, :]


def sign_problem(tau):
    """Return the rewards of Theorem 1, the joint distribution of equal labels, and its product of marginals."""
    signs = jnp.array(list(itertools.product([-1.0, 1.0], repeat=tau)))
    rewards = 1 - jnp.square(signs @ signs.T / tau)
    equal = jnp.zeros(2**tau).at[jnp.array([0, 2**tau - 1])].set(0.5)
    shape = (2,) * tau
    return rewards.reshape(-1, *shape), equal.reshape(shape), jnp.full(shape, 0.5**tau)


def test_expected_rewards_of_guessing_two_labels():
    probs = jnp.array([[0.1, 0.2], [0.3, 0.4]])
    rewards = jnp.eye(4).reshape(4, 2, 2)
    np.testing.assert_allclose(expected_rewards(rewards, probs), [0.1, 0.2, 0.3, 0.4], rtol=1e-6)


@pytest.mark.parametrize("tau", [2, 3, 4])
def test_theorem_1_in_closed_form(tau):
    rewards, joint, product = sign_problem(tau)
    earned = expected_rewards(rewards, joint)
    best = 1.0 if tau % 2 == 0 else 1 - 1 / tau**2
    np.testing.assert_allclose(jnp.max(earned), best, atol=1e-6)
    assert bool(jnp.all(best_actions(expected_rewards(rewards, product))))
    chosen = choice_probs(expected_rewards(rewards, product)) @ earned
    np.testing.assert_allclose(chosen, 1 - 1 / tau, atol=1e-6)
    np.testing.assert_allclose(shortfall(rewards, joint, product), best - (1 - 1 / tau), atol=1e-6)


def test_average_over_samples_is_the_expectation_under_their_frequencies(getkey):
    # 130 samples: two full chunks and a part of one.
    labels = jr.randint(getkey(), (130, 2), 0, 3)
    rewards = jr.uniform(getkey(), (5, 3, 3))
    frequencies = jnp.zeros((3, 3)).at[labels[:, 0], labels[:, 1]].add(1 / 130)
    averaged = expected_rewards_from_samples(lambda y: rewards[:, y[0], y[1]], labels)
    np.testing.assert_allclose(averaged, expected_rewards(rewards, frequencies), rtol=1e-5)


def test_labels_of_a_sample_share_their_index(getkey):
    enn = SignENN(GaussianIndex(1))
    labels = sample_labels(enn, jnp.zeros((4, 1)), Draws.sample(enn.index, 400, key=getkey()), key=getkey())
    assert labels.shape == (400, 4)
    assert bool(jnp.all(labels == labels[:, :1]))
    assert abs(float(jnp.mean(labels[:, 0])) - 0.5) < 4 * 0.5 / math.sqrt(400)


def test_labels_are_independent_given_the_index(getkey):
    class Fair(AbstractENN):
        index: AbstractIndex

        def embed(self, x):
            return jnp.zeros(2)

        def heads(self, embedding, zs):
            return jnp.broadcast_to(embedding, (zs.shape[0], 2))

    enn = Fair(GaussianIndex(1))
    labels = sample_labels(enn, jnp.zeros((2, 1)), Draws.sample(enn.index, 400, key=getkey()), key=getkey())
    equal = float(jnp.mean(labels[:, 0] == labels[:, 1]))
    assert abs(equal - 0.5) < 4 * 0.5 / math.sqrt(400)


def test_ties_are_shared_and_broken_uniformly(getkey):
    expected = jnp.array([0.3, 0.7, 0.7 - 1e-7, 0.2])
    assert best_actions(expected).tolist() == [False, True, True, False]
    assert choice_probs(expected).tolist() == [0.0, 0.5, 0.5, 0.0]
    assert best_actions(jnp.array([0.5, 0.5 - 1e-3]), tolerance=0.0).tolist() == [True, False]
    choose = jax.vmap(lambda key: choose_action(expected, key=key))
    actions = choose(jr.split(getkey(), 400))
    counts = jnp.bincount(actions, length=4)
    assert counts[0] == counts[3] == 0
    assert abs(int(counts[1]) - 200) < 4 * 10


def test_kl_of_coins_in_closed_form():
    p, q = 0.3, 0.6
    expected = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    np.testing.assert_allclose(joint_kl(jnp.array([p, 1 - p]), jnp.array([q, 1 - q])), expected, rtol=1e-6)


@pytest.mark.parametrize("delta", [1e-1, 1e-2, 1e-3, 1e-4])
def test_kl_keeps_its_digits_near_zero(delta):
    # Powers of two shift both probabilities by exactly the same amount.
    delta = 2.0 ** round(math.log2(delta))
    p, q = 0.5 + delta, 0.5
    expected = p * math.log1p(2 * delta) + (1 - p) * math.log1p(-2 * delta)
    np.testing.assert_allclose(joint_kl(jnp.array([p, 1 - p]), jnp.array([q, q])), expected, rtol=1e-4)


def test_kl_where_an_outcome_is_impossible():
    np.testing.assert_allclose(joint_kl(jnp.array([1.0, 0.0]), jnp.array([0.5, 0.5])), math.log(2), rtol=1e-6)
    assert float(joint_kl(jnp.array([0.5, 0.5]), jnp.array([1.0, 0.0]))) == math.inf
    assert float(joint_kl(jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0]))) == 0
    assert math.isfinite(float(joint_kl(jnp.array([1e-20, 1.0]), jnp.array([0.5, 0.5]))))


def test_theorem_2_is_tight_for_small_divergences():
    delta = 0.01
    truth, prediction = jnp.array([0.5 + delta, 0.5 - delta]), jnp.array([0.5 - 1e-5, 0.5 + 1e-5])
    lost = shortfall(jnp.eye(2), truth, prediction)
    np.testing.assert_allclose(lost, 2 * delta, rtol=1e-5)
    assert lost <= shortfall_bound(truth, prediction) <= 1.01 * lost


def test_theorem_2_scales_with_the_range_of_the_rewards():
    # The tight example above with rewards from -30 to 70: bound and shortfall grow by the same factor.
    delta = 0.01
    truth, prediction = jnp.array([0.5 + delta, 0.5 - delta]), jnp.array([0.5 - 1e-5, 0.5 + 1e-5])
    lost = shortfall(100 * jnp.eye(2) - 30, truth, prediction)
    np.testing.assert_allclose(lost, 100 * 2 * delta, rtol=1e-4)
    assert shortfall_bound(truth, prediction) < lost <= shortfall_bound(truth, prediction, width=100.0) <= 1.01 * lost
    with pytest.raises(ValueError, match="`width` must be finite and at least 0; got -1.0"):
        shortfall_bound(truth, prediction, width=-1.0)


@pytest.mark.parametrize(
    ("rewards", "probs", "message"),
    [
        (jnp.zeros((0, 2)), jnp.array([0.5, 0.5]), "`rewards` must hold at least one action"),
        (jnp.zeros((3, 2)), jnp.ones(3) / 3, "`joint_probs` must have the shape of `rewards` without its first axis"),
        (jnp.full((3, 2), jnp.nan), jnp.array([0.5, 0.5]), "`rewards` must be finite; got 6 non-finite of 6"),
        (jnp.zeros((3, 2)), jnp.array([0.5, 0.2]), "`joint_probs` must add up to one; got a sum of 0.7"),
        (jnp.zeros((3, 2)), jnp.array([1.5, -0.5]), "`joint_probs` must not be negative"),
    ],
)
def test_bad_tables_are_named(rewards, probs, message):
    with pytest.raises(ValueError, match=message):
        expected_rewards(rewards, probs)


def test_bad_samples_and_choices_are_named():
    labels = jnp.zeros((3, 2), int)
    with pytest.raises(ValueError, match="`labels` must have shape"):
        expected_rewards_from_samples(lambda y: jnp.zeros(2), jnp.zeros((0, 2), int))
    with pytest.raises(ValueError, match="`reward_fn` must return a vector"):
        expected_rewards_from_samples(lambda y: jnp.zeros(()), labels)
    with pytest.raises(ValueError, match="`reward_fn` must return a vector"):
        expected_rewards_from_samples(lambda y: jnp.zeros(0), labels)
    with pytest.raises(ValueError, match="`reward_fn.labels.` must be finite; got 2 non-finite of 2"):
        expected_rewards_from_samples(lambda _: jnp.array([jnp.inf, -jnp.inf]), labels)
    with pytest.raises(RuntimeError, match="must be finite"):
        jax.block_until_ready(
            eqx.filter_jit(lambda y: expected_rewards_from_samples(lambda _: jnp.full(2, jnp.nan), y))(labels)
        )
    with pytest.raises(ValueError, match="`expected` must hold at least one action"):
        best_actions(jnp.zeros(0))
    with pytest.raises(ValueError, match="`expected` must be finite"):
        best_actions(jnp.array([0.0, jnp.nan]))
    with pytest.raises(ValueError, match="`tolerance` must be at least 0"):
        best_actions(jnp.zeros(2), tolerance=-1.0)
    with pytest.raises(ValueError, match="`predicted_probs` must have the shape of `joint_probs`"):
        joint_kl(jnp.ones(2) / 2, jnp.ones(3) / 3)


def test_a_wrong_table_is_noticed_inside_a_compiled_program():
    with pytest.raises(RuntimeError, match="must be finite"):
        jax.block_until_ready(eqx.filter_jit(expected_rewards)(jnp.full((3, 2), jnp.inf), jnp.array([0.5, 0.5])))
