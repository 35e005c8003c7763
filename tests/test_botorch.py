"""An ENN as a model of the real BoTorch, where it is installed: `nox -s tests_botorch`."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enn_tables import Linear

import epinet_eqx as epi
from epinet_eqx import Draws
from epinet_eqx.decisions import SampledFunction, botorch_model, expected_improvement, sample_values
from epinet_eqx.epinet import mlp_prior
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def torch():
    """Return PyTorch, if BoTorch is installed as well. Their imports warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("botorch")
        return pytest.importorskip("torch")


def linear(num_samples, key):
    enn = Linear(jnp.array([[1.0, 2.0]]))
    draws = Draws.sample(enn.index, num_samples, key=key)
    return enn, draws, botorch_model(enn, draws)


def test_the_posterior_is_the_joint_prediction(torch, getkey):
    enn, draws, model = linear(50, getkey())
    x = np.array([[[0.5, -1.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [0.1, 0.2], [0.3, 0.4]]])
    posterior = model.posterior(torch.tensor(x))
    assert posterior.values.shape == (2, 50, 3, 1) and posterior.values.dtype == torch.float64
    for batch in range(2):
        values = sample_values(enn, jnp.asarray(x[batch], dtype=float), draws)
        np.testing.assert_allclose(posterior.values[batch, :, :, 0], values, rtol=1e-5, atol=1e-6)
    # Coherent: the covariance of two designs is that of the linear function, x^T diag(1, 4) x'.
    many = linear(4000, getkey())[2].posterior(torch.tensor(x[0])).values[:, :, 0].numpy()
    scaled = x[0] * np.array([1.0, 2.0])
    np.testing.assert_allclose(np.cov(many.T), scaled @ scaled.T, atol=0.6)


def test_gradients_are_those_of_jax(torch, getkey):
    prior = mlp_prior(2, 3, 1, hidden=(4,), key=getkey())
    base = MLP(2, 1, (6,), feature_layers=(0, -1), key=getkey())
    enn = epi.attach(base, index_dim=3, example=jnp.zeros(2), priors=(prior,), key=getkey())
    draws = Draws.sample(enn.index, 5, key=getkey())
    x = torch.tensor([[0.3, -0.8], [1.0, 0.5], [0.0, 0.1]], dtype=torch.float64, requires_grad=True)
    botorch_model(enn, draws).posterior(x).values.pow(2).sum().backward()

    def total(x):
        return sum(jnp.sum(jnp.square(jax.vmap(SampledFunction(enn, z))(x))) for z in draws.indices())

    np.testing.assert_allclose(x.grad, jax.grad(total)(jnp.asarray(x.detach().numpy(), dtype=float)), rtol=1e-3)


def test_acquisition_functions_apply_and_are_optimized(torch, getkey):
    from botorch.acquisition import qLogExpectedImprovement, qSimpleRegret
    from botorch.optim import optimize_acqf
    from botorch.sampling.index_sampler import IndexSampler

    enn, draws, model = linear(64, getkey())
    x = torch.tensor([[[0.5, -1.0]]], dtype=torch.float64)
    sampler = IndexSampler(torch.Size([4096]), seed=1)
    found = qLogExpectedImprovement(model, best_f=1.0, sampler=sampler)(x).exp()
    own = expected_improvement(sample_values(enn, jnp.array([[0.5, -1.0]]), draws), 1.0)
    np.testing.assert_allclose(found.detach(), own, rtol=0.1)
    # The expected maximum of two designs is largest for opposite ones, v and -v, where it is E|v|.
    torch.manual_seed(0)
    bounds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    best, value = optimize_acqf(qSimpleRegret(model, sampler=sampler), bounds, q=2, num_restarts=4, raw_samples=32)
    both = sample_values(enn, jnp.asarray(best.numpy(), dtype=float), draws)
    np.testing.assert_allclose(float(value), jnp.mean(jnp.max(both, axis=1)), rtol=0.1)
    assert float(value) > 0.8 * (2 * 5 / np.pi) ** 0.5


def test_a_wrong_number_of_outputs_is_named(torch, getkey):
    enn = Linear(jnp.ones((2, 2)))
    model = botorch_model(enn, Draws.sample(enn.index, 3, key=getkey()))
    with pytest.raises(ValueError, match="`num_outputs` must be that of `enn`, 2; got 1"):
        model.posterior(torch.zeros(1, 2))
