"""Active learning and choices of sets, against sums over all labels and closed forms."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from epinet_eqx import AbstractENN, Draws
from epinet_eqx.acquisition import (
    PoolLearner,
    acquire,
    at_random,
    balanced_start,
    bald_scores,
    batch_bald,
    by_batch_bald,
    by_score,
    entropy_scores,
    epig_scores,
    joint_loss_scores,
    margin_scores,
    run_active_learning,
    variance_scores,
)
from epinet_eqx.bayes import Ensemble
from epinet_eqx.decisions import any_success, as_independent, choose_set, sample_labels, set_reward
from epinet_eqx.indices import ParticleIndex
from epinet_eqx.likelihoods import Gaussian
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once


class Table(AbstractENN):
    """Logits by particle, input (a number) and class."""

    logits: Array
    index: ParticleIndex

    def __init__(self, logits):
        self.logits = logits
        self.index = ParticleIndex(logits.shape[0])

    def embed(self, x):
        return self.logits[:, x]

    def heads(self, embedding, zs):
        return embedding[zs]


@pytest.fixture
def table(getkey):
    """Return five particles that predict three classes at four inputs, the last two of which are the same."""
    logits = 2 * jr.normal(getkey(), (5, 4, 3))
    return Table(logits.at[:, 3].set(logits[:, 2]))


def probs_of(table):
    """Return the class probabilities by particle, input and class."""
    return np.asarray(jax.nn.softmax(table.logits), dtype=np.float64)


def information(probs, positions):
    """Return the mutual information of the labels at some inputs with the particle, by enumeration."""
    total = 0.0
    for labels in itertools.product(range(probs.shape[2]), repeat=len(positions)):
        given = np.prod([probs[:, x, y] for x, y in zip(positions, labels, strict=True)], axis=0)
        total += np.mean(given * np.log(given / np.mean(given)))
    return total


def test_scores_are_sums_over_labels_and_particles(table):
    x, probs = jnp.arange(4), probs_of(table)
    mean = np.mean(probs, axis=0)
    expected = [information(probs, [number]) for number in range(4)]
    np.testing.assert_allclose(bald_scores(table, x, Draws.all(table.index)), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        entropy_scores(table, x, Draws.all(table.index)), -np.sum(mean * np.log(mean), axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(
        variance_scores(table, x, Draws.all(table.index)), np.sum(np.var(probs, axis=0), axis=1), rtol=1e-4
    )
    top = np.sort(mean, axis=1)
    np.testing.assert_allclose(
        margin_scores(table, x, Draws.all(table.index)), top[:, -2] - top[:, -1], rtol=1e-4, atol=1e-6
    )
    variance = np.sum(np.var(np.asarray(table.logits), axis=0), axis=1)
    np.testing.assert_allclose(
        variance_scores(table, x, Draws.all(table.index), likelihood=Gaussian(1.0)), variance, rtol=1e-5
    )


def test_joint_loss_is_the_logarithm_of_a_mean_of_powers(table):
    x, y, probs = jnp.arange(4), jnp.array([0, 2, 1, 1]), probs_of(table)
    powers = -np.log(np.mean(probs**10, axis=0))
    np.testing.assert_allclose(
        joint_loss_scores(table, x, Draws.all(table.index), y=y), powers[np.arange(4), y], rtol=1e-5
    )
    expected = np.sum(np.mean(probs, axis=0) * powers, axis=1)
    np.testing.assert_allclose(joint_loss_scores(table, x, Draws.all(table.index)), expected, rtol=1e-5)
    # One label: the entropy.
    once = joint_loss_scores(table, x, Draws.all(table.index), tau=1)
    np.testing.assert_allclose(once, entropy_scores(table, x, Draws.all(table.index)), rtol=1e-5)


def test_scores_do_not_depend_on_how_the_pool_is_cut(table, getkey):
    x, key = jnp.arange(4), getkey()
    draws = Draws.sample(table.index, 20, key=key)
    cut = Draws.sample(table.index, 20, key=key, batch_size=3, chunk_size=7)
    whole = bald_scores(table, x, draws)
    np.testing.assert_allclose(bald_scores(table, x[2:], draws), whole[2:], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(bald_scores(table, x, cut), whole, rtol=1e-4, atol=1e-6)
    joint = [joint_loss_scores(table, x, each) for each in (draws, cut)]
    np.testing.assert_allclose(joint[1], joint[0], rtol=1e-4)
    gains = [epig_scores(table, x, jnp.array([1, 3]), each) for each in (draws, cut)]
    np.testing.assert_allclose(gains[1], gains[0], rtol=1e-4, atol=1e-6)


def test_information_about_labels_by_enumeration_and_never_above_that_about_the_index(table):
    probs, targets = probs_of(table), [1, 3]
    gains = epig_scores(table, jnp.arange(4), jnp.array(targets), Draws.all(table.index))
    for x in range(4):
        expected = 0.0
        for target, a, b in itertools.product(targets, range(3), range(3)):
            joint = np.mean(probs[:, x, a] * probs[:, target, b])
            expected += joint * np.log(joint / (np.mean(probs[:, x, a]) * np.mean(probs[:, target, b]))) / 2
        np.testing.assert_allclose(gains[x], expected, rtol=1e-3, atol=1e-6)
    assert np.all(gains <= bald_scores(table, jnp.arange(4), Draws.all(table.index)) + 1e-6)


def test_a_batch_is_worth_the_information_of_all_its_labels(table, getkey):
    probs, single = probs_of(table), bald_scores(table, jnp.arange(4), Draws.all(table.index))
    choice = batch_bald(table, jnp.arange(4), 3, Draws.all(table.index), key=getkey())
    positions = choice.positions.tolist()
    assert len(set(positions)) == 3 and positions[0] == int(jnp.argmax(single))
    np.testing.assert_allclose(choice.gains[0], jnp.max(single), rtol=1e-4)
    np.testing.assert_allclose(np.sum(choice.gains), information(probs, positions), rtol=1e-4)
    # Greedy: no other second input gives more.
    pairs = [information(probs, [positions[0], other]) for other in range(4) if other != positions[0]]
    np.testing.assert_allclose(choice.gains[0] + choice.gains[1], max(pairs), rtol=1e-4)
    # A copy of an input tells less than the input itself.
    copies = batch_bald(
        table, jnp.arange(4), 2, Draws.all(table.index), available=jnp.array([False, False, True, True]), key=getkey()
    )
    assert sorted(copies.positions.tolist()) == [2, 3]
    np.testing.assert_allclose(np.sum(copies.gains), information(probs, [2, 3]), rtol=1e-4)
    assert np.sum(copies.gains) < 2 * single[2] - 0.01


def test_copies_are_avoided_by_the_batch_and_not_by_single_scores(getkey):
    # Four particles: inputs 0 and 1 tell one bit almost surely, the same one; input 2 tells most of another one.
    bits = jnp.array([[1.0, 1.0, 0.7], [1.0, 1.0, -0.7], [-1.0, -1.0, 0.7], [-1.0, -1.0, -0.7]])
    enn = Table(jnp.stack([6 * bits, -6 * bits], axis=-1))
    assert sorted(acquire(bald_scores(enn, jnp.arange(3), Draws.all(enn.index)), 2).tolist()) == [0, 1]
    assert batch_bald(enn, jnp.arange(3), 2, Draws.all(enn.index), key=getkey()).positions.tolist() == [0, 2]
    # Saturated: what is impossible is not NaN, and the second copy tells nothing.
    twins = jnp.array([True, True, False])
    sure = Table(500 * enn.logits)
    certain = batch_bald(sure, jnp.arange(3), 2, Draws.all(sure.index), available=twins, key=getkey())
    np.testing.assert_allclose(certain.gains, [np.log(2), 0.0], atol=1e-5)


def test_drawn_combinations_come_close_to_all_of_them(getkey):
    # All inputs are chosen, so the sum of the gains is the same in every order.
    enn = Table(jr.normal(getkey(), (6, 5, 2)))
    drawn = batch_bald(enn, jnp.arange(5), 5, Draws.all(enn.index), max_combinations=8, key=getkey())
    assert sorted(drawn.positions.tolist()) == list(range(5))
    np.testing.assert_allclose(np.sum(drawn.gains), information(probs_of(enn), range(5)), rtol=0.1)


def test_the_largest_scores_are_acquired():
    scores = jnp.array([0.1, 0.9, 0.5, 0.9])
    assert acquire(scores, 3).tolist() == [1, 3, 2]
    assert acquire(scores, 2, available=jnp.array([True, False, True, False])).tolist() == [2, 0]


def test_a_balanced_start_has_so_many_of_each_class(getkey):
    y = jnp.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    draw = jax.jit(jax.vmap(lambda key: balanced_start(y, 3, 2, key=key)))
    starts = np.asarray(draw(jr.split(getkey(), 200)))
    assert all(len(set(start)) == 6 for start in starts)
    assert np.all(np.asarray(y)[starts] == np.array([0, 0, 1, 1, 2, 2])[None, :])
    # Each of the four examples of class 0 is as likely as the others.
    counts = np.bincount(starts[:, :2].reshape(-1), minlength=4)
    assert np.all(np.abs(counts - 100) < 4 * np.sqrt(200 * 0.25))


def correlated(key):
    """Return joint samples of three candidates: the first two succeed together, 0.6; the third where they do not."""
    hit = jr.permutation(key, jnp.arange(50) < 30)
    return jnp.stack([hit, hit, ~hit], axis=1).astype(int)


def test_a_set_is_chosen_by_joint_samples_and_not_by_marginals(getkey):
    outcomes = correlated(getkey())
    joint = choose_set(any_success, outcomes, 2)
    assert sorted(joint.positions.tolist())[-1] == 2
    np.testing.assert_allclose(joint.rewards, [0.6, 1.0], rtol=1e-6)
    # As if independent, the two likely ones seem to succeed with probability 1 - 0.4 ** 2, but only 0.6 is true.
    apart = as_independent(jnp.tile(outcomes, (40, 1)), key=getkey())
    np.testing.assert_allclose(np.mean(apart, axis=0), [0.6, 0.6, 0.4], rtol=1e-6)
    marginal = choose_set(any_success, apart, 2)
    assert sorted(marginal.positions.tolist()) == [0, 1]
    np.testing.assert_allclose(marginal.rewards[1], 0.84, atol=4 * 0.37 / 2000**0.5)
    chosen = jnp.zeros(3, bool).at[marginal.positions].set(True)
    np.testing.assert_allclose(set_reward(any_success, outcomes, chosen), 0.6, rtol=1e-6)


def test_the_labels_of_an_enn_are_enough_to_choose_a_set(getkey):
    # Two particles that are sure of opposite things.
    logits = 30 * jnp.array([[1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    enn = Table(jnp.stack([-logits, logits], axis=-1))
    labels = sample_labels(enn, jnp.arange(3), Draws.sample(enn.index, 40, key=getkey()), key=getkey())
    choice = choose_set(any_success, labels, 2, available=jnp.array([True, False, True]))
    assert sorted(choice.positions.tolist()) == [0, 2]
    assert float(choice.rewards[1]) == 1


def line(key):
    """Return a pool of points on a line with two classes."""
    x = jr.normal(key, (30, 1))
    return Batch.of(x, (x[:, 0] > 0).astype(jnp.int32))


def test_labels_are_asked_for_in_rounds(getkey):
    pool = line(getkey())
    learner = PoolLearner(
        lambda key: Ensemble(eqx.filter_vmap(lambda k: MLP(1, 2, (), key=k))(jr.split(key, 2))),
        CrossEntropy(l2=0.01),
        optimizer=optax.adam(0.3),
        num_steps=20,
        batch_size=8,
        num_index_samples=2,
    )

    def accuracy(enn):
        guesses = jnp.argmax(jax.vmap(lambda x: enn(x, jnp.asarray(0)))(pool.x), axis=-1)
        return jnp.mean((guesses == pool.y).astype(float))

    def run(key):
        start_key, run_key = jr.split(key)
        return run_active_learning(
            learner,
            pool,
            by_score(bald_scores, num_samples=None),
            start=balanced_start(pool.y, 2, 1, key=start_key),
            num_rounds=2,
            size=3,
            evaluate=accuracy,
            key=run_key,
        )

    found = eqx.filter_vmap(run)(jr.split(getkey(), 2))
    assert found.positions.shape == (2, 8) and found.evaluations.shape == (2, 3)
    assert all(len(set(positions)) == 8 for positions in found.positions.tolist())
    assert found.num_labels[0].tolist() == [2, 5, 8]
    assert np.all(found.evaluations[:, -1] > 0.8)


def test_rules_of_acquisition_choose_what_is_available(table, getkey):
    free = jnp.array([False, True, True, True])
    exact = batch_bald(table, jnp.arange(4), 2, Draws.all(table.index), available=free, key=getkey())
    chosen = by_batch_bald(num_samples=None)(table, jnp.arange(4), 2, available=free, key=getkey())
    assert chosen.tolist() == exact.positions.tolist()
    for _ in range(5):
        chosen = at_random(table, jnp.arange(4), 2, available=free, key=getkey()).tolist()
        assert len(set(chosen)) == 2 and 0 not in chosen


def test_bad_pools_are_named(table, getkey, as_user):
    scores = jnp.zeros(3)
    with pytest.raises(ValueError, match="`batch_size` must be at most the size of the pool, 3; got 4"):
        acquire(scores, 4)
    with pytest.raises(
        ValueError, match="`batch_size` must be at most the number of inputs that are available, 1; got 2"
    ):
        acquire(scores, 2, available=jnp.array([False, True, False]))
    with pytest.raises(ValueError, match="`available` must hold one boolean per candidate, 3"):
        acquire(scores, 2, available=jnp.ones(2, bool))
    with pytest.raises(ValueError, match="`scores` must be finite"):
        acquire(jnp.array([0.0, jnp.nan]), 1)
    with pytest.raises(ValueError, match="`scores` must hold one score per input"):
        acquire(jnp.zeros((2, 2)), 1)
    with pytest.raises(ValueError, match="`size` must be at most the size of the pool, 4; got 5"):
        batch_bald(table, jnp.arange(4), 5, Draws.all(table.index), key=getkey())
    with pytest.raises(ValueError, match="`y` must hold at least 1 labels of each of the 3 classes; got 0 of class 1"):
        balanced_start(jnp.array([0, 2, 2]), 3, 1, key=getkey())
    with pytest.raises(ValueError, match="`y` must hold one target per example of `x`"):
        joint_loss_scores(table, jnp.arange(4), Draws.all(table.index), y=jnp.zeros(3, int))
    with pytest.raises(ValueError, match="`enn` must have at least 2 outputs"):
        one = Table(jnp.zeros((2, 4, 1)))
        margin_scores(one, jnp.arange(4), Draws.all(one.index))
    with pytest.raises(ValueError, match="`outcomes` must have shape .samples, candidates."):
        choose_set(any_success, jnp.zeros(3, int), 1)
    with pytest.raises(ValueError, match="`size` must be at most the size of the pool, 3; got 4"):
        choose_set(any_success, jnp.zeros((2, 3), int), 4)
    with pytest.raises(ValueError, match="`reward_fn` must return the reward of the set, a scalar"):
        choose_set(lambda y, chosen: y, jnp.zeros((2, 3), int), 1)
    with pytest.raises(ValueError, match="`reward_fn.outcomes, chosen.` must be finite"):
        choose_set(lambda y, chosen: 1.0 / y[0], jnp.array([[0.0, 0.0], [1.0, 0.0]]), 1)
    learner = PoolLearner(lambda key: table, CrossEntropy(), num_steps=1)
    options = {"num_rounds": 2, "size": 2, "evaluate": lambda enn: jnp.zeros(()), "key": getkey()}
    pool = Batch.of(jnp.arange(4), jnp.arange(4) % 3)
    with pytest.raises(
        ValueError, match="`pool` must hold at least the 5 inputs that 1 at the start and 2 rounds of 2"
    ):
        run_active_learning(learner, pool, at_random, start=jnp.array([0]), **options)
    with pytest.raises(ValueError, match="`start` must hold different positions from 0 to 3 of the pool"):
        run_active_learning(learner, pool, at_random, start=jnp.array([1, 1]), **(options | {"num_rounds": 1}))
