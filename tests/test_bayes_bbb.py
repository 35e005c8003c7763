"""Bayes by backprop as an ENN, and the divergences of its loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm

from epinet_eqx import freeze, trainable_mask
from epinet_eqx._tree import count_parameters
from epinet_eqx.bayes import BayesByBackprop, Deterministic
from epinet_eqx.losses import Batch, CrossEntropy, GaussianKL, ScaleMixtureKL, mean_loss
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once


def make_enn(key, sigma_init=0.3):
    return BayesByBackprop(MLP(3, 4, (8,), key=key), sigma_init=sigma_init)


def varied(enn, key):
    """Return `enn` with different means and standard deviations for all parameters."""
    mean_key, rho_key = jr.split(key)
    mean, rho = jr.normal(mean_key, enn.mean.shape), jr.normal(rho_key, enn.rho.shape)
    return eqx.tree_at(lambda enn: (enn.mean, enn.rho), enn, (mean, rho))


@pytest.mark.parametrize("sigma_init", [1e-6, 0.01, 1.0, 100.0])
def test_sigma_begins_where_it_should(sigma_init, getkey):
    enn = make_enn(getkey(), sigma_init)
    assert jnp.allclose(enn.sigma, sigma_init, rtol=1e-5, atol=0)


def test_zero_index_gives_the_network(getkey):
    network, x = MLP(3, 4, (8,), key=getkey()), jr.normal(getkey(), (3,))
    enn = BayesByBackprop(network)
    assert enn.index.size == count_parameters(network) == 3 * 8 + 8 + 8 * 4 + 4
    assert jnp.allclose(enn(x, jnp.zeros(enn.index.shape)), network(x), atol=1e-6)


def test_parameters_have_the_mean_and_deviation_they_say(getkey):
    enn = varied(make_enn(getkey()), getkey())
    zs = enn.index.sample_many(4000, key=getkey())
    samples = jax.vmap(enn.parameters_at)(zs)
    # Five standard errors, for 68 parameters at once.
    assert jnp.all(jnp.abs(jnp.mean(samples, 0) - enn.mean) < 5 * enn.sigma / 4000**0.5)
    assert jnp.all(jnp.abs(jnp.std(samples, 0) / enn.sigma - 1) < 5 / 8000**0.5)


def test_output_of_a_linear_network_is_gaussian_with_the_exact_moments(getkey):
    # One linear layer: the output has mean mu x + b and variance sum of sigma^2 x^2 plus that of the bias.
    enn = varied(BayesByBackprop(MLP(3, 4, (), key=getkey())), getkey())
    x = jr.normal(getkey(), (3,))
    outputs = enn.heads(enn.embed(x), enn.index.sample_many(4000, key=getkey()))
    at_mean = enn.skeleton.build(enn.mean).layers[0]
    sigmas = enn.skeleton.build(enn.sigma).layers[0]
    deviation = jnp.sqrt(jnp.square(sigmas.weight) @ jnp.square(x) + jnp.square(sigmas.bias))
    assert jnp.all(jnp.abs(jnp.mean(outputs, 0) - at_mean(x)) < 4 * deviation / 4000**0.5)
    assert jnp.all(jnp.abs(jnp.std(outputs, 0) / deviation - 1) < 4 / 8000**0.5)


def test_parameters_are_drawn_once_per_index_not_per_input(getkey, optimized):
    network = MLP(10, 2, (50, 50), key=getkey())
    x = jnp.zeros((64, 10))

    def flops(enn, num_samples):
        def outputs(x, zs):
            return jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(x)

        zs = jnp.zeros((num_samples, *enn.index.shape), int if enn.index.shape == () else float)
        return jax.jit(outputs).lower(x, zs).compile().cost_analysis()["flops"]

    # Twelve operations per parameter and index, softplus and all, would be 64 times as many if done per input.
    forward = flops(Deterministic(network), 1)
    assert flops(BayesByBackprop(network), 8) < 8 * (forward + 20 * count_parameters(network))


def test_frozen_parts_of_the_network_stay_as_they_are(getkey):
    network = freeze(MLP(3, 4, (8,), key=getkey()), lambda network: network.layers[0])
    enn = BayesByBackprop(network)
    assert enn.index.size == 8 * 4 + 4
    built = enn.skeleton.build(enn.parameters_at(jnp.ones(enn.index.shape)))
    assert eqx.tree_equal(built.layers[0], network.layers[0])
    mask = trainable_mask(enn)
    assert mask.mean and mask.rho and not any(jax.tree.leaves(mask.skeleton))


def test_any_equinox_module_can_be_the_network(getkey):
    network, x = eqx.nn.MLP(3, 4, 8, 1, key=getkey()), jr.normal(getkey(), (3,))
    enn = BayesByBackprop(network)
    assert jnp.allclose(enn(x, jnp.zeros(enn.index.shape)), network(x), atol=1e-6)


def test_gaussian_divergence_equals_quadrature(getkey):
    enn = varied(make_enn(getkey()), getkey())
    z = jnp.linspace(-12.0, 12.0, 4001)
    theta = enn.mean[:, None] + enn.sigma[:, None] * z[None, :]
    log_ratio = norm.logpdf(z)[None, :] - jnp.log(enn.sigma)[:, None] - norm.logpdf(theta, scale=1.7)
    expected = jnp.sum(jnp.trapezoid(jnp.exp(norm.logpdf(z))[None, :] * log_ratio, dx=24 / 4000, axis=1))
    divergence = GaussianKL(20, 1.7, scale=5.0)(enn, None, jnp.zeros(enn.index.shape))
    assert jnp.allclose(divergence, 5.0 / 20 * expected, rtol=1e-4)


def test_gaussian_divergence_vanishes_at_the_prior(getkey):
    enn = make_enn(getkey(), sigma_init=0.5)
    enn = eqx.tree_at(lambda enn: enn.mean, enn, jnp.zeros_like(enn.mean))
    penalty = GaussianKL(1, 0.5)
    assert jnp.allclose(penalty(enn, None, jnp.zeros(enn.index.shape)), 0.0, atol=1e-4)
    gradient = eqx.filter_grad(lambda enn: penalty(enn, None, jnp.zeros(enn.index.shape)))(enn)
    assert jnp.allclose(gradient.mean, 0.0, atol=1e-5) and jnp.allclose(gradient.rho, 0.0, atol=1e-5)


@pytest.mark.parametrize("mixture", [(1.3, 0.2, 1.0), (0.2, 1.3, 0.0), (1.3, 1.3, 0.4)])
def test_sampled_divergence_with_one_component_averages_to_the_analytic_one(mixture, getkey):
    enn = varied(make_enn(getkey()), getkey())
    zs = enn.index.sample_many(2000, key=getkey())
    estimates = jax.vmap(lambda z: ScaleMixtureKL(20, *mixture)(enn, None, z))(zs)
    exact = GaussianKL(20, 1.3)(enn, None, zs[0])
    assert abs(jnp.mean(estimates) - exact) < 4 * jnp.std(estimates) / 2000**0.5


def test_mixture_density_at_one_parameter(getkey):
    enn = varied(make_enn(getkey()), getkey())
    z = jr.normal(getkey(), enn.index.shape)
    theta, sigma = np.float64(enn.parameters_at(z)), np.float64(enn.sigma)

    def density(x, scale):
        return np.exp(-0.5 * (x / scale) ** 2) / (scale * np.sqrt(2 * np.pi))

    prior = 0.3 * density(theta, 2.0) + 0.7 * density(theta, 0.5)
    expected = np.sum(np.log(density(np.float64(z), 1.0) / sigma / prior))
    assert jnp.allclose(ScaleMixtureKL(1, 2.0, 0.5, 0.3)(enn, None, z), expected, rtol=1e-4)


def test_gradients_of_both_divergences_are_finite(getkey):
    enn, z = varied(make_enn(getkey()), getkey()), jr.normal(getkey(), (68,))
    for penalty in (GaussianKL(10), ScaleMixtureKL(10, mixture_weight=1.0), ScaleMixtureKL(10, mixture_weight=0.0)):
        gradient = eqx.filter_grad(lambda enn, penalty=penalty: penalty(enn, None, z))(enn)
        for part in (gradient.mean, gradient.rho):
            assert jnp.all(jnp.isfinite(part)) and jnp.any(part != 0)


def test_loss_is_minus_the_lower_bound_per_example(getkey):
    enn = make_enn(getkey())
    data = Batch.of(jr.normal(getkey(), (6, 3)), jr.randint(getkey(), (6,), 0, 4))
    zs = enn.index.sample_many(3, key=getkey())
    penalty = ScaleMixtureKL(6, scale=2.0)
    loss = mean_loss(CrossEntropy(penalty=penalty), enn, zs, data)
    outputs = jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(data.x)
    log_probs = jnp.take_along_axis(jax.nn.log_softmax(outputs), data.y[:, None, None], axis=-1)
    divergences = jax.vmap(lambda z: penalty(enn, None, z))(zs)
    assert jnp.allclose(loss, jnp.mean(divergences) - jnp.mean(log_probs), rtol=1e-5)


def test_bad_input_is_refused(getkey):
    network = MLP(3, 4, (8,), key=getkey())
    with pytest.raises(ValueError, match=r"`sigma_init` must be positive and finite; got 0\.0"):
        BayesByBackprop(network, sigma_init=0.0)
    with pytest.raises(ValueError, match=r"`num_examples` must be finite and positive; got 0\.0"):
        GaussianKL(0)
    with pytest.raises(ValueError, match=r"`sigma_1` must be finite and positive; got -1\.0"):
        GaussianKL(10, -1.0)
    with pytest.raises(ValueError, match=r"`sigma_2` must be finite and positive; got 0\.0"):
        ScaleMixtureKL(10, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"`mixture_weight` must be from 0 to 1; got 1\.5"):
        ScaleMixtureKL(10, mixture_weight=1.5)
    with pytest.raises(ValueError, match=r"`scale` must be finite and at least 0; got -2\.0"):
        GaussianKL(10, scale=-2.0)
    with pytest.raises(TypeError, match="`enn` must be a `BayesByBackprop` .*; got Deterministic"):
        GaussianKL(10)(Deterministic(network), None, jnp.array(0))
    with pytest.raises(ValueError, match=r"`z` must have shape \(68,\); got \(67,\)"):
        BayesByBackprop(network)(jnp.zeros(3), jnp.zeros(67))
