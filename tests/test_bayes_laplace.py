"""Last-layer Laplace: exact covariances, exact linear regression, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import trainable_mask
from epinet_eqx.bayes import last_layer_laplace
from epinet_eqx.likelihoods import Bernoulli, Gaussian, LearnedGaussian, Poisson
from epinet_eqx.networks import MLP, FunctionNetwork

pytestmark = pytest.mark.once


@pytest.fixture
def network(getkey):
    return eqx.filter_jit(lambda key: MLP(3, 4, (5,), key=key))(getkey())


def _root(enn):
    """Return the linear map that the root is, as a matrix whose rows are where unit vectors go."""
    return np.asarray(jax.vmap(lambda z: enn.root.value(z).ravel())(jnp.eye(enn.index.size)))


def _covariance(enn):
    """Return the covariance of the last layer's weights."""
    return _root(enn).T @ _root(enn)


def _inputs(network, x):
    features = jax.vmap(network.with_features)(x)[1]
    return np.concatenate([np.asarray(features), np.ones((len(features), 1))], axis=1)


def test_categorical_covariance_is_the_inverse_hessian(network, getkey):
    x, y = jr.normal(getkey(), (9, 3)), jr.randint(getkey(), (9,), 0, 4)
    enn = last_layer_laplace(network, x, y, prior_precision=0.5)
    inputs = jnp.asarray(_inputs(network, x), dtype=float)

    def negative_log_joint(weights):
        log_probs = jax.nn.log_softmax(inputs @ weights.reshape(6, 4))
        return -jnp.sum(jnp.take_along_axis(log_probs, y[:, None], axis=1)) + 0.25 * jnp.sum(weights**2)

    last = network.layers[-1]
    mode = jnp.concatenate([last.weight.T, last.bias[None, :]]).ravel()
    hessian = np.asarray(jax.jit(jax.hessian(negative_log_joint))(mode), dtype=np.float64)
    np.testing.assert_allclose(_covariance(enn), np.linalg.inv(hessian), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(enn(x[0], jnp.zeros(24)), network(x[0]), rtol=1e-5)


def test_outputs_are_those_of_the_sampled_last_layer(network, getkey):
    x = jr.normal(getkey(), (9, 3))
    for structure in ("dense", "kronecker"):
        enn = last_layer_laplace(network, x, prior_precision=0.5, structure=structure)
        z = enn.index.sample(key=getkey())
        deviation = enn.root.value(z)
        last = network.layers[-1]
        moved = eqx.tree_at(
            lambda n: (n.layers[-1].weight, n.layers[-1].bias),
            network,
            (last.weight + deviation[:-1].T, last.bias + deviation[-1]),
        )
        np.testing.assert_allclose(jax.vmap(lambda x: enn(x, z))(x), jax.vmap(moved)(x), rtol=1e-4, atol=1e-5)  # noqa: B023


def test_gaussian_is_exact_bayesian_linear_regression(network, getkey):
    x, y = jr.normal(getkey(), (9, 3)), jr.normal(getkey(), (9, 4))
    enn = last_layer_laplace(network, x, y, prior_precision=0.7, likelihood=Gaussian(0.3))
    inputs = _inputs(network, x).astype(np.float64)
    covariance = np.linalg.inv(inputs.T @ inputs / 0.09 + 0.7 * np.eye(6))
    mean = covariance @ inputs.T @ np.asarray(y) / 0.09
    np.testing.assert_allclose(enn.mean.value, mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(_covariance(enn), np.kron(covariance, np.eye(4)), rtol=1e-3, atol=1e-4)
    # Joint predictions: outputs at several inputs have the posterior's covariance across inputs.
    outputs = jax.vmap(lambda x: enn.heads(enn.embed(x), jnp.eye(24)) - enn.embed(x).mean[None, :])(x)
    found = jnp.einsum("imc,jmc->ij", outputs, outputs) / 4
    np.testing.assert_allclose(found, inputs @ covariance @ inputs.T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), LearnedGaussian()], ids=lambda one: type(one).__name__)
def test_covariance_is_the_inverse_fisher_information_of_any_likelihood(likelihood, network, getkey):
    x = jr.normal(getkey(), (9, 3))
    enn = last_layer_laplace(network, x, prior_precision=0.5, likelihood=likelihood, chunk_size=4)
    inputs, outputs = _inputs(network, x), jax.vmap(network)(x)
    precision = 0.5 * np.eye(24)
    for phi, output in zip(inputs, outputs, strict=True):
        precision += np.kron(np.outer(phi, phi), np.asarray(likelihood.fisher(output[None], jnp.ones(1))))
    np.testing.assert_allclose(_covariance(enn), np.linalg.inv(precision), rtol=1e-3, atol=1e-4)


def test_one_regression_output_takes_a_vector_of_targets(getkey):
    network = MLP(3, 1, (5,), key=getkey())
    x, y = jr.normal(getkey(), (9, 3)), jr.normal(getkey(), (9,))
    options = dict(prior_precision=1.0, likelihood=Gaussian(1.0))
    both = [last_layer_laplace(network, x, targets, **options) for targets in (y, y[:, None])]
    assert eqx.tree_equal(*both)


def test_kronecker_is_exact_where_all_probabilities_are_the_same(network, getkey):
    uniform = eqx.tree_at(lambda n: n.layers[-1], network, replace_fn=lambda layer: jax.tree.map(jnp.zeros_like, layer))
    x = jr.normal(getkey(), (9, 3))
    dense, kronecker = (
        last_layer_laplace(uniform, x, prior_precision=2.0, structure=structure) for structure in ("dense", "kronecker")
    )
    np.testing.assert_allclose(_covariance(kronecker), _covariance(dense), rtol=1e-3, atol=1e-4)


def test_kronecker_keeps_the_trace_of_the_curvature_for_one_example(network, getkey):
    # One example is one Kronecker product, so it is exact whatever the probabilities.
    x = jr.normal(getkey(), (1, 3))
    dense, kronecker = (
        last_layer_laplace(network, x, prior_precision=2.0, structure=structure) for structure in ("dense", "kronecker")
    )
    np.testing.assert_allclose(_covariance(kronecker), _covariance(dense), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("structure", ["dense", "kronecker"])
def test_the_root_is_the_one_that_every_machine_finds(network, getkey, structure):
    # One made of eigenvectors would depend on their signs.
    enn = last_layer_laplace(network, jr.normal(getkey(), (9, 3)), prior_precision=0.5, structure=structure)
    np.testing.assert_allclose(_root(enn), _root(enn).T, atol=1e-5)
    assert np.linalg.eigvalsh(_root(enn)).min() > 0


def test_nothing_is_trainable_and_chunks_do_not_matter(network, getkey):
    x = jr.normal(getkey(), (9, 3))
    one, many = (last_layer_laplace(network, x, prior_precision=1.0, chunk_size=size) for size in (9, 4))
    assert not any(jax.tree.leaves(trainable_mask(one)))
    np.testing.assert_allclose(_covariance(one), _covariance(many), rtol=1e-4, atol=1e-5)


def test_any_function_with_features_has_a_last_layer(network, getkey):
    function = FunctionNetwork(lambda x: (network(x), network.with_features(x)[1]))
    x = jr.normal(getkey(), (9, 3))
    enn = last_layer_laplace(function, x, prior_precision=1.0)
    np.testing.assert_allclose(enn(x[0], jnp.zeros(24)), network(x[0]), rtol=1e-5)


def test_bad_input(network, getkey):
    x, y = jr.normal(getkey(), (9, 3)), jr.normal(getkey(), (9, 4))
    good = dict(prior_precision=1.0)
    with pytest.raises(ValueError, match=r"`prior_precision` must be finite and at least 1e-12; got -1\.0"):
        last_layer_laplace(network, x, prior_precision=-1.0)
    with pytest.raises(ValueError, match="`y` must be given for the likelihood Gaussian; got None"):
        last_layer_laplace(network, x, **good, likelihood=Gaussian(1.0))
    with pytest.raises(ValueError, match=r"`y` must hold 4 floating-point outputs per example; got shape \(9,\)"):
        last_layer_laplace(network, x, y[:, 0], **good, likelihood=Gaussian(1.0))
    with pytest.raises(ValueError, match="`y` must have as many examples as `x`, 9; got 8"):
        last_layer_laplace(network, x, jnp.zeros(8, dtype=int), **good)
    with pytest.raises(ValueError, match="`y` must hold classes from 0 to 3; got values from 4 to 4"):
        last_layer_laplace(network, x, jnp.full(9, 4), **good)
    with pytest.raises(ValueError, match="`features` must be finite; got .* non-finite"):
        last_layer_laplace(network, x.at[0].set(jnp.nan), **good)
    with pytest.raises(ValueError, match="`chunk_size` must be a positive integer; got 0"):
        last_layer_laplace(network, x, **good, chunk_size=0)
