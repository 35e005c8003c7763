"""Likelihoods: distributions that sum to one, Fisher information by enumeration, and losses made of them."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.scipy import stats

from epinet_eqx import Draws
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.combinators import WithNoiseScale
from epinet_eqx.likelihoods import AbstractLikelihood, Bernoulli, Categorical, Gaussian, LearnedGaussian, Poisson
from epinet_eqx.losses import Batch, CrossEntropy, FunctionLoss, LogLoss, SquaredLoss, mean_loss
from epinet_eqx.metrics import log_losses
from epinet_eqx.networks import MLP, FunctionNetwork
from epinet_eqx.training import fit

pytestmark = pytest.mark.once

# Targets that carry all of the probability, up to rounding.
ENUMERATED = {
    "categorical": (Categorical(), jnp.arange(3)),
    "bernoulli": (Bernoulli(), jnp.array(list(itertools.product([0, 1], repeat=3)))),
    "poisson": (Poisson(), jnp.array(list(itertools.product(range(16), repeat=3)))),
}


@pytest.mark.parametrize("name", ENUMERATED)
def test_probabilities_sum_to_one_and_their_scores_give_the_fisher_information(name, getkey):
    likelihood, ys = ENUMERATED[name]
    outputs, weights = 0.5 * jr.normal(getkey(), (2, 3)), jnp.array([0.3, 2.0])

    def information(output):
        probs = jnp.exp(jax.vmap(lambda y: likelihood.log_prob(output, y))(ys))
        scores = jax.vmap(lambda y: jax.grad(likelihood.log_prob)(output, y))(ys)
        return jnp.sum(probs), (probs[:, None] * scores).T @ scores

    totals, each = jax.vmap(information)(outputs)
    np.testing.assert_allclose(totals, 1.0, rtol=1e-4)
    expected = jnp.tensordot(weights, each, axes=1)
    np.testing.assert_allclose(likelihood.fisher(outputs, weights), expected, rtol=1e-3, atol=1e-5)


def test_densities_of_regressions_and_their_fisher_information(getkey):
    mean, log_scale, y = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,))
    expected = jnp.sum(stats.norm.logpdf(y, mean, jnp.exp(log_scale)))
    np.testing.assert_allclose(LearnedGaussian().log_prob(jnp.concatenate([mean, log_scale]), y), expected, rtol=1e-5)
    np.testing.assert_allclose(Gaussian(0.7).log_prob(mean, y), jnp.sum(stats.norm.logpdf(y, mean, 0.7)), rtol=1e-5)
    # Minus the expected Hessian, by Gauss-Hermite quadrature over one target.
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    for likelihood, output in ((Gaussian(0.7), mean[:1]), (LearnedGaussian(), jnp.array([0.4, -0.3]))):
        scale = 0.7 if output.size == 1 else jnp.exp(output[1])
        hessian = jax.hessian(likelihood.log_prob)
        values = jnp.stack([hessian(output, output[:1] + scale * node) for node in nodes])
        expected = -jnp.tensordot(jnp.asarray(weights / weights.sum(), dtype=float), values, axes=1)
        np.testing.assert_allclose(likelihood.fisher(output[None], jnp.ones(1)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("as_user")
def test_targets_that_a_likelihood_cannot_have_are_named():
    cases = [
        (Bernoulli(), jnp.array([[0, 2]]), 2, "`y` must hold zeros and ones only"),
        (Bernoulli(), jnp.zeros((1, 3), int), 2, r"`y` must hold 2 zeros and ones per example; got shape \(1, 3\)"),
        (Poisson(), jnp.array([[1, -1]]), 2, "`y` must hold counts only"),
        (Poisson(), jnp.array([0.5]), 1, "`y` must hold counts only"),
        (
            LearnedGaussian(),
            jnp.zeros((1, 2)),
            3,
            "must have a multiple of 2 outputs for a `LearnedGaussian` likelihood, .*; got 3",
        ),
        (LearnedGaussian(), jnp.zeros((1, 4)), 4, "`y` must hold 2 floating-point outputs per example"),
        (Gaussian(1.0), jnp.zeros((1, 2), int), 2, "`y` must hold 2 floating-point outputs per example"),
    ]
    for likelihood, y, num_outputs, message in cases:
        with pytest.raises(ValueError, match=message):
            likelihood.check_targets(y, num_outputs)
        with pytest.raises(ValueError, match=message):
            LogLoss(likelihood).check_targets(y, num_outputs)
    assert Poisson().check_targets(jnp.array([0, 3]), 1).shape == (2, 1)


class Reversed(AbstractLikelihood):
    """Classes whose outputs come in the reverse order."""

    has_classes = True

    def log_prob(self, output, y):
        return Categorical().log_prob(output[::-1], y)

    def mean(self, output):
        return Categorical().mean(output[::-1])

    def check_targets(self, y, num_outputs):
        return Categorical().check_targets(y, num_outputs)


def test_a_likelihood_of_classes_has_an_error_rate():
    x, y = jnp.tile(jnp.eye(3), (2, 1)), jnp.array([2, 1, 0, 0, 0, 0])
    enn = Deterministic(FunctionNetwork(lambda x: (x, x)))
    error = log_losses(enn, x, y, Draws.all(enn.index), likelihood=Reversed()).error
    assert error is not None
    # The predicted classes are 2, 1, 0, 2, 1, 0.
    np.testing.assert_array_equal(error.values, [0, 0, 0, 1, 1, 0])


def test_named_losses_are_log_losses_up_to_constants(getkey):
    make = lambda key: MLP(3, 4, (6,), key=key)  # noqa: E731
    enn = Ensemble(eqx.filter_vmap(make)(jr.split(getkey(), 3)))
    x, zs = jr.normal(getkey(), (5, 3)), enn.index.support()
    labels = Batch.of(x, jr.randint(getkey(), (5,), 0, 4))
    expected = mean_loss(CrossEntropy(l2=0.1), enn, zs, labels)
    np.testing.assert_allclose(mean_loss(LogLoss(Categorical(), l2=0.1), enn, zs, labels), expected, rtol=1e-5)
    numbers = Batch.of(x, jr.normal(getkey(), (5, 4)))
    squared = mean_loss(SquaredLoss(), enn, zs, numbers)
    constant = 4 * (jnp.log(0.7) + 0.5 * jnp.log(2 * jnp.pi))
    log_loss = mean_loss(LogLoss(Gaussian(0.7)), enn, zs, numbers)
    np.testing.assert_allclose(log_loss, squared / (2 * 0.7**2) + constant, rtol=1e-5)
    function = FunctionLoss(lambda output, y: jnp.sum(jnp.square(output - y)), l2=0.1)
    np.testing.assert_allclose(
        mean_loss(function, enn, zs, numbers), mean_loss(SquaredLoss(l2=0.1), enn, zs, numbers), rtol=1e-5
    )


def test_a_learned_noise_scale_is_that_of_the_residuals(getkey):
    # The mean is fixed at zero, so the scale of largest likelihood is the root mean square of the targets.
    x, y = jnp.zeros((200, 1)), 0.3 * jr.normal(getkey(), (200, 2)) * jnp.array([[1.0, 4.0]])
    mean = Deterministic(FunctionNetwork(lambda x: (jnp.zeros(2), x)))
    enn = WithNoiseScale(mean, jnp.array([1.0, 1.0]))
    options = {"num_steps": 300, "batch_size": None, "optimizer": optax.adam(0.05), "progress": False}
    trained = fit(enn, (x, y), LogLoss(LearnedGaussian()), **options, key=getkey()).enn
    np.testing.assert_allclose(jnp.exp(trained.log_scale), jnp.sqrt(jnp.mean(y**2, axis=0)), rtol=1e-2)
    with pytest.raises(ValueError, match="`scale` must be positive"):
        WithNoiseScale(mean, jnp.array([1.0, 0.0]))
