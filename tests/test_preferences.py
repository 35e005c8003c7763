"""Preferences: the Bradley-Terry likelihood of any reward ENN in closed form, training by `fit`, and duels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from enn_tables import Linear, Table
from jaxtyping import Array

from epinet_eqx import AbstractENN, Draws
from epinet_eqx.bayes import Deterministic
from epinet_eqx.combinators import BradleyTerry
from epinet_eqx.decisions import (
    as_independent,
    best_of_n,
    infomax_duel,
    preference_probs,
    sample_values,
    thompson_duel,
)
from epinet_eqx.indices import AbstractIndex, GaussianIndex
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.predict import joint_log_probs, marginal_log_probs
from epinet_eqx.training import fit

pytestmark = pytest.mark.once


class LinearReward(AbstractENN):
    """The reward `(mean + scale * z) @ x`: differences of rewards are Gaussian."""

    mean: Array
    scale: Array
    index: AbstractIndex

    def __init__(self, mean, scale):
        self.mean, self.scale = jnp.asarray(mean), jnp.asarray(scale)
        self.index = GaussianIndex(len(mean))

    def embed(self, x):
        return x

    def heads(self, embedding, zs):
        return ((self.mean[None, :] + zs * self.scale[None, :]) @ embedding)[:, None]


@pytest.fixture
def reward():
    return LinearReward([1.0, -0.5], [0.7, 1.5])


def expected_sigmoid(mean, scale):
    """Return the mean of sigmoid over a Gaussian by quadrature, exact to rounding."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    return float(weights @ (1 / (1 + np.exp(-(mean + scale * nodes)))) / weights.sum())


def test_choice_probabilities_of_a_gaussian_reward_are_exact(reward, getkey):
    pairs = jnp.array([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 3.0]]])
    draws = Draws.sample(reward.index, 4000, key=getkey())
    found = jnp.exp(marginal_log_probs(BradleyTerry(reward), pairs, draws))
    for (a, b), probs in zip(np.asarray(pairs), found, strict=True):
        scale = np.linalg.norm(np.array([0.7, 1.5]) * (a - b))
        exact = expected_sigmoid(np.array([1.0, -0.5]) @ (a - b), scale)
        np.testing.assert_allclose(probs, [exact, 1 - exact], atol=4 * 0.5 / 4000**0.5)
    # Two comparisons of the same pair depend on each other: the second answer is likely the first one.
    twice = jnp.exp(joint_log_probs(BradleyTerry(reward), pairs[jnp.array([0, 0])], draws))
    assert float(twice[0, 0]) > float(found[0, 0] ** 2) + 0.02
    by_matrix = preference_probs(sample_values(reward, pairs[0], draws))
    np.testing.assert_allclose(by_matrix[0, 1], found[0, 0], rtol=1e-4)
    np.testing.assert_allclose(by_matrix + by_matrix.T, np.ones((2, 2)), rtol=1e-6)


def test_a_comparison_is_antisymmetric_and_equal_responses_are_even(reward, getkey):
    comparison, z = BradleyTerry(reward), reward.index.sample(key=getkey())
    a, b = jr.normal(getkey(), (2, 2))
    forward, backward = comparison(jnp.stack([a, b]), z), comparison(jnp.stack([b, a]), z)
    np.testing.assert_array_equal(forward, backward[::-1])
    gap = reward(a, z)[0] - reward(b, z)[0]
    np.testing.assert_allclose(jax.nn.softmax(forward)[0], jax.nn.sigmoid(gap), rtol=1e-5)
    np.testing.assert_array_equal(jax.nn.softmax(comparison(jnp.stack([a, a]), z)), [0.5, 0.5])
    # The loss is that of Bradley and Terry.
    loss = CrossEntropy()(comparison, z, jnp.stack([a, b]), jnp.asarray(1), jnp.asarray(0))
    np.testing.assert_allclose(loss, jnp.logaddexp(0.0, gap), rtol=1e-5)


def test_a_network_learns_the_order_from_comparisons_by_fit(getkey):
    pairs = jr.normal(getkey(), (200, 2, 1))
    preferred = jnp.argmax(pairs[:, :, 0], axis=1)
    enn = BradleyTerry(Deterministic(MLP(1, 1, (), key=getkey())))
    trained = fit(enn, (pairs, preferred), CrossEntropy(), optimizer=optax.adam(0.1), num_steps=60, key=getkey()).enn
    assert isinstance(trained, BradleyTerry)
    values = sample_values(trained.enn, jnp.array([[-1.0], [0.0], [1.0]]), Draws.all(trained.enn.index))
    assert bool(jnp.all(jnp.diff(values[0]) > 0.5))


def test_responses_are_trees_of_any_number(getkey):
    class Sum(AbstractENN):
        enn: AbstractENN

        @property
        def index(self):
            return self.enn.index

        def embed(self, x):
            return self.enn.embed(x["prompt"] + x["answer"])

        def heads(self, embedding, zs):
            return self.enn.heads(embedding, zs)

    enn = Sum(Linear([[1.0, 2.0]]))
    options = {"prompt": jnp.ones((3, 2)), "answer": jr.normal(getkey(), (3, 2))}
    z = enn.index.sample(key=getkey())
    rewards = BradleyTerry(enn)(options, z)
    assert rewards.shape == (3,)
    np.testing.assert_allclose(
        rewards[1], enn({"prompt": jnp.ones(2), "answer": options["answer"][1]}, z)[0], rtol=1e-6
    )
    with pytest.raises(ValueError, match="`enn` must have one output, the reward of an option; got 2"):
        BradleyTerry(Table(jnp.zeros((3, 4, 2))))(jnp.arange(2), jnp.asarray(0))


def test_a_thompson_duel_is_between_the_best_of_two_samples():
    rewards = jnp.array([[3.0, 1.0, 2.0], [5.0, 4.0, 0.0], [0.0, 1.0, 2.0], [0.0, 9.0, 2.0]])
    assert thompson_duel(rewards).tolist() == [0, 2]
    # Always the same best one: the second best of the last sample.
    assert thompson_duel(rewards[:2]).tolist() == [0, 1]


def test_duels_of_coherent_samples_do_not_depend_on_copies_of_a_response(getkey):
    # A sure response and nine copies of an unsure one that is better half of the time.
    gamble = jr.normal(getkey(), (2000, 1))
    rewards = jnp.concatenate([jnp.zeros((2000, 1)), jnp.repeat(gamble, 9, axis=1)], axis=1)
    apart = as_independent(rewards, key=getkey())

    def share_of_sure(samples):
        firsts = jax.vmap(thompson_duel)(samples.reshape(1000, 2, 10))[:, 0]
        return float(jnp.mean(firsts == 0))

    assert share_of_sure(rewards) == pytest.approx(0.5, abs=4 * 0.5 / 1000**0.5)
    # With a new index for each copy, the sure one must beat nine draws.
    assert share_of_sure(apart) == pytest.approx(0.5**9, abs=4 * (0.5**9 / 1000) ** 0.5)


def test_infomax_compares_what_ignorance_and_not_noise_makes_uncertain(getkey):
    # Responses 0 and 1 are surely even: an uncertain choice that no label explains. Response 2 is unknown.
    rewards = jnp.concatenate([jnp.zeros((50, 2)), 3 * jr.normal(getkey(), (50, 1)), jnp.ones((50, 1))], axis=1)
    pair = infomax_duel(rewards)
    variances = [
        [float(np.var(1 / (1 + np.exp(np.asarray(rewards[:, b] - rewards[:, a]))))) for b in range(4)] for a in range(4)
    ]
    assert variances[int(pair[0])][int(pair[1])] == pytest.approx(np.max(variances), rel=1e-4)
    assert 2 in pair.tolist()
    # Nothing is uncertain: still two different responses.
    assert len(set(infomax_duel(jnp.zeros((3, 4))).tolist())) == 2


def test_the_best_of_n_has_the_largest_mean():
    assert int(best_of_n(jnp.array([[9.0, 4.0, 0.0], [-9.0, 4.0, 5.0]]))) == 1


def test_bad_rewards_are_named():
    with pytest.raises(ValueError, match="`rewards` must hold at least 2 samples of at least 2 responses; got shape"):
        thompson_duel(jnp.zeros((1, 3)))
    with pytest.raises(ValueError, match="`rewards` must hold at least 1 samples of at least 2 responses"):
        infomax_duel(jnp.zeros((3, 1)))
    with pytest.raises(ValueError, match="`rewards` must be finite"):
        best_of_n(jnp.array([[jnp.nan, 0.0]]))
    with pytest.raises(RuntimeError, match="must be finite"):
        jax.block_until_ready(eqx.filter_jit(thompson_duel)(jnp.full((2, 2), jnp.nan)))
