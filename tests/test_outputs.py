"""Outputs of other kinds than one class: tokens, several labels, several numbers, counts, from `attach` to metrics."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import epinet_eqx as epi
from epinet_eqx import metrics, predict
from epinet_eqx.combinators import WithNoiseScale
from epinet_eqx.likelihoods import Bernoulli, Categorical, Gaussian, LearnedGaussian, PerPosition, Poisson
from epinet_eqx.losses import LogLoss
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once

RNG = np.random.Generator(np.random.Philox(key=9))
X = RNG.normal(size=(24, 3)).astype(np.float32)
SIGNS = (X[:, :2] > 0).astype(np.int32)
# The likelihood, the number of outputs, and targets that the inputs tell.
KINDS = {
    "tokens": (PerPosition(Categorical(), 4), 12, np.repeat(SIGNS[:, :1] + SIGNS[:, 1:], 4, axis=1)),
    "labels of tokens": (PerPosition(Bernoulli(), 2), 4, np.stack([SIGNS, 1 - SIGNS], axis=1)),
    "several labels": (Bernoulli(), 2, SIGNS),
    "several numbers": (Gaussian(jnp.array([0.1, 1.0])), 2, X[:, :2] * np.float32([1, 10])),
    "learned noise": (LearnedGaussian(), 2, X[:, :2]),
    "counts": (Poisson(), 2, 3 * SIGNS),
}


def make(kind):
    """Return an ENN of one kind, its likelihood and targets."""
    likelihood, size, y = KINDS[kind]
    network = MLP(3, size, (8,), key=jr.key(0))
    enn = epi.attach(network, example=X[0], index_dim=2, hidden=(4,), freeze=False, key=jr.key(1))
    return (WithNoiseScale(enn) if kind == "learned noise" else enn), likelihood, y


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_output_goes_all_the_way(kind):
    enn, likelihood, y = make(kind)
    draws = epi.Draws.sample(enn.index, 6, key=jr.key(2))
    before = metrics.log_losses(enn, X, y, draws, likelihood=likelihood)
    options = {"num_steps": 60, "batch_size": 12, "progress": False}
    enn = epi.fit(enn, (X, y), LogLoss(likelihood), **options, key=jr.key(3)).enn
    after = metrics.log_losses(enn, X, y, draws, likelihood=likelihood)
    assert after.marginal.mean < before.marginal.mean and after.joint.mean < before.joint.mean
    # One label at a time, the loss is that of the mean probability, by enumeration over the draws.
    outputs = jax.vmap(lambda x: enn.heads(enn.embed(x), draws.indices()))(jnp.asarray(X))
    targets = likelihood.check_targets(jnp.asarray(y), outputs.shape[-1])
    each = jax.vmap(lambda own, y: jax.vmap(lambda output: likelihood.log_prob(output, y))(own))(outputs, targets)
    expected = -np.mean(jax.nn.logsumexp(each, axis=1) - np.log(6))
    np.testing.assert_allclose(after.marginal.mean, expected, rtol=1e-4)
    if isinstance(likelihood, PerPosition | Bernoulli):
        found = predict.uncertainty(enn, X, draws, likelihood=likelihood)
        assert jnp.all(found.epistemic > -1e-5) and found.total.shape == (24,)
    else:
        ends = predict.interval(enn, X, draws, likelihood=likelihood)
        assert ends.lower.shape == (24, 2) and jnp.all(ends.lower <= ends.upper)


def test_positions_add_up():
    likelihood = PerPosition(Categorical(), 3)
    output, y = jnp.asarray(RNG.normal(size=6), dtype=float), jnp.array([1, 0, 1])
    parts = output.reshape(3, 2)
    expected = sum(Categorical().log_prob(own, label) for own, label in zip(parts, y, strict=True))
    np.testing.assert_allclose(likelihood.log_prob(output, y), expected, rtol=1e-6)
    np.testing.assert_allclose(likelihood.outcome_log_probs(output), jax.nn.log_softmax(parts), rtol=1e-6)
    np.testing.assert_allclose(likelihood.mean(output).reshape(3, 2), jax.nn.softmax(parts), rtol=1e-6)


@pytest.mark.usefixtures("as_user")
def test_outputs_that_do_not_fit_are_named():
    likelihood = PerPosition(Categorical(), 3)
    cases = [
        (lambda: likelihood.check_targets(jnp.zeros((4, 2), int), 6), r"each of 3 positions .*; got shape \(4, 2\)"),
        (lambda: likelihood.check_targets(jnp.zeros((4, 3), int), 7), "a multiple of 3 outputs, .*; got 7"),
        (lambda: likelihood.check_targets(jnp.full((4, 3), 2), 6), "classes from 0 to 1; got values from 2 to 2"),
        (lambda: PerPosition(Gaussian(1.0), 3), "`likelihood` must be one of labels, .*; got Gaussian"),
        (
            lambda: epi.attach(lambda x: (x[:, None] * jnp.ones((1, 2)), x), example=X[0], index_dim=2, key=jr.key(0)),
            r"to a vector of outputs; got \(3, 2\)\. For labels at several positions return `jnp.ravel\(outputs\)`",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
