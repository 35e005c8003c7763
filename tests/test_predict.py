"""Predictions: identities between marginal, joint and conditional ones, and closed forms."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Linear, Noise, Table

import epinet_eqx as epi
from epinet_eqx._counts import weigh_counts
from epinet_eqx._draws import LogSum
from epinet_eqx.likelihoods import Gaussian
from epinet_eqx.predict import (
    conditional_log_probs,
    entropy,
    independent_log_prob,
    join_samples,
    joint_log_prob,
    joint_log_probs,
    marginal_log_probs,
    moments,
    sample,
    uncertainty,
)

pytestmark = pytest.mark.once


def close(a, b, atol=1e-5):
    return np.allclose(a, b, rtol=1e-5, atol=atol)


@pytest.fixture
def table(getkey):
    return Table(2 * jr.normal(getkey(), (5, 3, 2)))


@pytest.fixture
def gaussian(getkey):
    return Linear(jr.normal(getkey(), (4, 3)))


def test_joint_table_is_the_average_of_products(table):
    log_table = joint_log_probs(table, jnp.arange(3), epi.Draws.all(table.index))
    probs = np.asarray(jax.nn.softmax(table.outputs))
    assert close(np.exp(log_table), np.einsum("ma,mb,mc->abc", *probs.swapaxes(0, 1)) / 5)
    # It sums to one, and summing out the other labels leaves the marginal predictions.
    assert close(np.exp(log_table).sum(), 1)
    marginals = marginal_log_probs(table, jnp.arange(3), epi.Draws.all(table.index))
    for t in range(3):
        others = tuple(s for s in range(3) if s != t)
        assert close(np.exp(log_table).sum(axis=others), np.exp(marginals[t]))


def test_joint_log_prob_reads_the_joint_table(table):
    x = jnp.arange(3)
    log_table = joint_log_probs(table, x, epi.Draws.all(table.index))
    for labels in itertools.product(range(2), repeat=3):
        value = joint_log_prob(table, x, jnp.array(labels), epi.Draws.all(table.index))
        assert close(value, log_table[labels])


def test_one_label_is_marginal_and_one_index_makes_labels_independent(gaussian, getkey):
    x, y, key = jr.normal(getkey(), (3, 3)), jnp.array([1, 0, 3]), getkey()
    marginals = marginal_log_probs(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key))
    assert close(joint_log_prob(gaussian, x[:1], y[:1], epi.Draws.sample(gaussian.index, 20, key=key)), marginals[0, 1])
    # Eq. (1) is the product of marginals; it is Eq. (2) only if the index is always the same.
    product = independent_log_prob(gaussian, x, y, epi.Draws.sample(gaussian.index, 20, key=key))
    assert close(product, marginals[jnp.arange(3), y].sum())
    assert not close(product, joint_log_prob(gaussian, x, y, epi.Draws.sample(gaussian.index, 20, key=key)), atol=1e-2)
    one = Table(jr.normal(getkey(), (1, 3, 4)))
    joint = joint_log_prob(one, jnp.arange(3), y, epi.Draws.all(one.index))
    assert close(joint, independent_log_prob(one, jnp.arange(3), y, epi.Draws.all(one.index)))


def test_joint_is_the_logarithm_of_a_mean_not_the_mean_of_logarithms():
    # Pitfall 7: one of two particles is sure and right, the other sure and wrong.
    table = Table([[[50.0, 0.0]] * 2, [[0.0, 50.0]] * 2])
    value = joint_log_prob(table, jnp.arange(2), jnp.zeros(2, int), epi.Draws.all(table.index))
    assert close(value, -np.log(2))


def test_conditional_is_a_ratio_of_joints(table):
    for first in range(2):
        conditional = conditional_log_probs(
            table, jnp.array([0]), jnp.array([first]), jnp.array(1), epi.Draws.all(table.index)
        )
        joint = joint_log_probs(table, jnp.arange(2), epi.Draws.all(table.index))
        assert close(conditional, joint[first] - jax.nn.logsumexp(joint[first]))
        assert close(jnp.exp(conditional).sum(), 1)


def test_conditional_tells_ambiguity_from_lack_of_data():
    # The two ENNs of Figure 3, with the same marginals: a label teaches the second one the next label.
    x, y, new = jnp.array([0]), jnp.array([0]), jnp.array(0)
    aleatoric = Table([[[0.0, 0.0]], [[0.0, 0.0]]])
    epistemic = Table([[[80.0, 0.0]], [[0.0, 80.0]]])
    assert close(conditional_log_probs(aleatoric, x, y, new, epi.Draws.all(aleatoric.index)), np.log([0.5, 0.5]))
    assert close(np.exp(conditional_log_probs(epistemic, x, y, new, epi.Draws.all(epistemic.index))), [1.0, 0.0])
    assert close(np.exp(joint_log_probs(epistemic, jnp.zeros(2, int), epi.Draws.all(epistemic.index))), np.eye(2) / 2)


@pytest.mark.parametrize("function", [marginal_log_probs, uncertainty, moments])
def test_chunks_and_batches_change_nothing(gaussian, getkey, function):
    x, key = jr.normal(getkey(), (5, 3)), getkey()
    # Neither the chunk divides the samples nor the batch the inputs.
    expected = function(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key, chunk_size=20))
    found = function(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key, chunk_size=7, batch_size=2))
    assert all(close(a, b) for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True))


def test_support_is_averaged_exactly_whatever_the_chunk(table):
    expected = jnp.log(jnp.mean(jax.nn.softmax(table.outputs), axis=0))
    for chunk_size in (2, 16):
        found = marginal_log_probs(table, jnp.arange(3), epi.Draws.all(table.index, chunk_size=chunk_size))
        assert close(found, expected)
    sampled = marginal_log_probs(table, jnp.arange(3), epi.Draws.sample(table.index, 4000, key=jr.key(0)))
    assert close(jnp.exp(sampled), jnp.exp(expected), atol=0.03)


def test_samples_carry_indices_that_a_key_stands_for(gaussian, getkey):
    key = getkey()
    x = jr.normal(getkey(), (5, 3))
    samples = sample(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key))
    assert samples.outputs.shape == (20, 5, 4)
    assert close(samples.outputs[7, 2], gaussian(x[2], samples.zs[7]))
    # More samples begin with the fewer, and all predictions use these very indices.
    assert jnp.array_equal(sample(gaussian, x, epi.Draws.sample(gaussian.index, 7, key=key)).zs, samples.zs[:7])
    given = epi.Draws.given(gaussian.index, samples.zs[3:12], chunk_size=4)
    assert close(sample(gaussian, x, given).outputs, samples.outputs[3:12])
    # Known indices serve like sampled ones, in a chunk that does not divide them, too.
    assert close(
        marginal_log_probs(gaussian, x, epi.Draws.given(gaussian.index, samples.zs, chunk_size=7)),
        marginal_log_probs(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key)),
    )
    log_probs = jax.nn.logsumexp(jax.nn.log_softmax(samples.outputs), axis=0) - np.log(20)
    assert close(marginal_log_probs(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key)), log_probs)
    found = moments(gaussian, x, epi.Draws.sample(gaussian.index, 20, key=key))
    assert close(found.mean, samples.outputs.mean(axis=0)) and close(found.variance, samples.outputs.var(axis=0))


def test_samples_join_only_with_the_same_indices(gaussian, getkey):
    # Pitfall 9: one z per sample for all inputs, across batches too.
    key = getkey()
    x = jr.normal(getkey(), (5, 3))
    parts = [sample(gaussian, part, epi.Draws.sample(gaussian.index, 6, key=key)) for part in (x[:2], x[2:])]
    whole = sample(gaussian, x, epi.Draws.sample(gaussian.index, 6, key=key))
    assert close(join_samples(*parts).outputs, whole.outputs)
    other = sample(gaussian, x, epi.Draws.sample(gaussian.index, 6, key=getkey()))
    with pytest.raises(ValueError, match=r"`samples\[1\]` must be made with the same indices"):
        join_samples(whole, other)
    with pytest.raises(ValueError, match="same indices"):
        join_samples(whole, sample(gaussian, x, epi.Draws.sample(gaussian.index, 5, key=key)))
    with pytest.raises(RuntimeError, match="same indices"):
        eqx.filter_jit(join_samples)(whole, other)
    with pytest.raises(ValueError, match="at least one"):
        join_samples()


def test_indices_may_be_keys(getkey):
    enn, x, key = Noise(), jnp.zeros((3, 2)), getkey()
    samples = sample(enn, x, epi.Draws.sample(enn.index, 6, key=key))
    # One draw of the noise for all inputs.
    assert jnp.array_equal(samples.outputs[:, 0], samples.outputs[:, 2])
    assert close(
        moments(enn, x, epi.Draws.sample(enn.index, 6, key=key, chunk_size=4)).mean, samples.outputs.mean(axis=0)
    )
    assert join_samples(samples, samples).outputs.shape == (6, 6, 2)
    with pytest.raises(ValueError, match="same indices"):
        join_samples(samples, sample(enn, x, epi.Draws.sample(enn.index, 6, key=getkey())))


def test_saturated_predictions_have_finite_uncertainty():
    # Pitfall 6: probabilities that are exactly zero, by underflow or by a logit of minus infinity.
    table = Table([[[300.0, 0.0, -300.0], [0.0, -np.inf, 0.0]], [[-300.0, 300.0, 0.0], [0.0, -np.inf, 0.0]]])
    found = uncertainty(table, jnp.arange(2), epi.Draws.all(table.index))
    # The first input is known given the index and unknown without it; for the second it is the reverse.
    assert close(found.epistemic, [np.log(2), 0.0]) and close(found.aleatoric, [0.0, np.log(2)])
    assert close(entropy(jnp.array([0.0, -jnp.inf])), 0.0)


def test_uncertainty_adds_up_exactly(gaussian, getkey):
    x, key = 10 * jr.normal(getkey(), (50, 3)), getkey()
    found = uncertainty(gaussian, x, epi.Draws.sample(gaussian.index, 30, key=key))
    assert jnp.array_equal(found.total, found.aleatoric + found.epistemic)
    assert bool(jnp.all(found.epistemic >= 0)) and bool(jnp.all(found.aleatoric >= 0))
    assert close(
        found.total, entropy(marginal_log_probs(gaussian, x, epi.Draws.sample(gaussian.index, 30, key=key))), atol=1e-4
    )


def test_regression_joint_is_a_multivariate_normal(getkey):
    # f(x, z) = x @ z with z ~ N(0, I): targets with noise are jointly N(0, X X^T + s^2 I).
    x = 0.5 * jr.normal(getkey(), (3, 2))
    y = jnp.array([0.3, -0.5, 0.8])
    enn = Linear(jnp.ones((1, 2)))
    found = joint_log_prob(
        enn, x, y, epi.Draws.sample(enn.index, 20_000, key=getkey(), chunk_size=500), likelihood=Gaussian(0.7)
    )
    covariance = x @ x.T + 0.49 * jnp.eye(3)
    assert close(found, jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros(3), covariance), atol=0.03)
    found = moments(enn, x, epi.Draws.sample(enn.index, 20_000, key=getkey(), chunk_size=500))
    assert close(found.mean, 0.0, atol=0.03) and close(found.variance[:, 0], jnp.sum(x**2, axis=1), atol=0.05)


def test_running_log_sum_survives_extremes():
    terms = jnp.array([[-1e4, -jnp.inf], [-1e4 + 1, -jnp.inf], [-2e4, -jnp.inf], [5e4, 3.0]])
    sums = LogSum.zeros((2,))
    for start in (0, 2):
        sums = sums.add(terms[start : start + 2], jnp.array([True, start == 0]))
    assert close(sums.log_mean(1), [-1e4 + np.log(1 + np.e), -np.inf], atol=1e-2)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_counts_of_impossible_outcomes(dtype):
    # Zero times minus infinity is zero: what does not occur does not matter.
    log_p = jnp.array([[0.0, -jnp.inf], [-1.0, -2.0]], dtype=dtype)
    counts = jnp.array([[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert jnp.array_equal(weigh_counts(counts, log_p), jnp.array([[0.0, -jnp.inf, 0.0], [-3.0, -3.0, 0.0]]))


def test_inputs_may_be_trees(gaussian, getkey):
    class Pair(epi.AbstractENN):
        enn: epi.AbstractENN

        @property
        def index(self):
            return self.enn.index

        def embed(self, x):
            return self.enn.embed(x["a"] + x["b"])

        def heads(self, embedding, zs):
            return self.enn.heads(embedding, zs)

    a, b, key = jr.normal(getkey(), (3, 3)), jr.normal(getkey(), (3, 3)), getkey()
    found = marginal_log_probs(
        Pair(gaussian), {"a": a, "b": b}, epi.Draws.sample(gaussian.index, 9, key=key, batch_size=2)
    )
    assert close(found, marginal_log_probs(gaussian, a + b, epi.Draws.sample(gaussian.index, 9, key=key)))


def test_predictions_work_inside_transformations(gaussian, getkey):
    x, y, key = jr.normal(getkey(), (3, 3)), jnp.array([1, 0, 3]), getkey()

    def at(scale):
        scaled = Linear(scale * gaussian.weight)
        return joint_log_prob(scaled, x, y, epi.Draws.sample(scaled.index, 10, key=key, chunk_size=4))

    scales = jnp.array([0.99, 1.01])
    low, high = (at(scale) for scale in scales)
    mapped = jax.jit(jax.vmap(at))(scales)
    assert close(mapped, jnp.stack([low, high]))
    assert close(jax.grad(at)(jnp.array(1.0)), (high - low) / 0.02, atol=1e-3)
