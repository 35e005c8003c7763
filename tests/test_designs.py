"""Designs: gradients by the input against finite differences, maxima in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Linear
from jaxtyping import Array
from scipy.stats import norm

import epinet_eqx as epi
from epinet_eqx import AbstractENN, Draws
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.combinators import Mirrored, OnTrunk, Prior, WithPrior
from epinet_eqx.decisions import (
    ImprovementFunction,
    SampledFunction,
    botorch_model,
    expected_improvement,
    maximize,
    sample_values,
    with_input_gradients,
)
from epinet_eqx.epinet import mlp_prior
from epinet_eqx.indices import AbstractIndex, GaussianIndex, ParticleIndex
from epinet_eqx.networks import MLP, headless

pytestmark = pytest.mark.once


def network(key, out=1):
    return MLP(2, out, (6,), feature_layers=(0, -1), key=key)


def with_priors(key):
    keys = jr.split(key, 3)
    prior = mlp_prior(2, 3, 1, hidden=(4,), key=keys[2])
    return epi.attach(network(keys[0]), index_dim=3, example=jnp.zeros(2), priors=(prior,), key=keys[1])


def ensemble_plus(key):
    members, others = (eqx.filter_vmap(network)(jr.split(k, 4)) for k in jr.split(key))
    return WithPrior(Ensemble(members), Prior(Ensemble(others), 2.0))


ENNS = {
    "epinet": with_priors,
    "ensemble with priors": ensemble_plus,
    "inside of others": lambda key: Mirrored(epi.Tempered(with_priors(key), 0.5), 0.7),
    "on a trunk": lambda key: OnTrunk(
        headless(network(jr.fold_in(key, 0))),
        WithPrior(
            Deterministic(MLP(8, 1, (), key=jr.fold_in(key, 1))),
            Prior(Deterministic(MLP(8, 1, (), key=jr.fold_in(key, 2)))),
        ),
    ),
}


@pytest.mark.parametrize("name", ENNS)
def test_gradients_by_the_design_are_those_of_finite_differences(name, getkey):
    enn = ENNS[name](getkey())
    z, x = enn.index.sample(key=getkey()), jnp.array([0.3, -0.8])
    function = SampledFunction(enn, z)
    # The same function, to the last bit.
    assert float(function(x)) == float(enn(x, z)[0])
    gradient = jax.jit(jax.grad(function))(x)
    step = 2e-3
    shifts = step * jnp.eye(2)
    ahead, behind = (jax.vmap(function)(x[None, :] + sign * shifts) for sign in (1, -1))
    differences = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(gradient, differences, rtol=2e-2, atol=2e-3)
    # As trained, a part of it is stopped.
    stopped = jax.grad(lambda x: enn(x, z)[0])(x)
    assert float(jnp.max(jnp.abs(stopped - gradient))) > 1e-2


def test_weights_of_priors_and_frozen_parts_stay_stopped(getkey):
    enn = with_input_gradients(with_priors(getkey()))
    z, x = enn.index.sample(key=getkey()), jnp.array([0.3, -0.8])
    grads = eqx.filter_grad(lambda enn: enn(x, z)[0])(enn)
    for part in (grads.base, grads.priors):
        assert all(float(jnp.max(jnp.abs(leaf))) == 0 for leaf in jax.tree.leaves(part))
    assert any(float(jnp.max(jnp.abs(leaf))) > 0 for leaf in jax.tree.leaves(grads.learnable))


class Hill(AbstractENN):
    """The concave function `height - |x - z|^2`: each sampled function has its maximum at its own index."""

    index: AbstractIndex
    height: Array

    def embed(self, x):
        return x

    def heads(self, embedding, zs):
        return self.height - jnp.sum(jnp.square(embedding[None, :] - zs), axis=1, keepdims=True)


BOUNDS = jnp.array([[-1.0, -5.0], [2.0, 5.0]])


def test_maxima_of_sampled_functions_are_inside_or_on_the_boundary(getkey):
    enn = Hill(GaussianIndex(2), jnp.asarray(3.0))
    zs = jnp.array([[0.5, 2.0], [4.0, -1.0]])
    found = eqx.filter_vmap(lambda z, key: maximize(SampledFunction(enn, z), BOUNDS, num_candidates=32, key=key))(
        zs, jr.split(getkey(), 2)
    )
    np.testing.assert_allclose(found.x, [[0.5, 2.0], [2.0, -1.0]], atol=0.02)
    np.testing.assert_allclose(found.value, [3.0, 3.0 - 4.0], atol=0.01)


def test_the_best_design_seen_is_kept(getkey):
    # Steps as long as the box lose every start again.
    enn, z = Hill(GaussianIndex(2), jnp.asarray(0.0)), jnp.array([0.5, 2.0])
    key = getkey()
    options = {"num_candidates": 64, "num_starts": 2, "key": key}
    wild = maximize(SampledFunction(enn, z), BOUNDS, num_steps=3, learning_rate=1.0, **options)
    still = maximize(SampledFunction(enn, z), BOUNDS, num_steps=1, learning_rate=0.0, **options)
    assert float(wild.value) >= float(still.value)


def test_expected_improvement_of_a_linear_function_in_closed_form(getkey):
    enn = Linear(jnp.array([[1.0, 2.0]]))
    draws, x = Draws.sample(enn.index, 4000, key=getkey()), jnp.array([0.5, -1.0])
    function = ImprovementFunction(enn, draws, 1.0)
    scale = np.linalg.norm([0.5, -2.0])
    exact = scale * norm.pdf(1 / scale) - norm.sf(1 / scale)
    np.testing.assert_allclose(function(x), exact, atol=4 * scale / 4000**0.5)
    np.testing.assert_allclose(function(x), expected_improvement(sample_values(enn, x[None], draws), 1.0)[0], rtol=1e-4)
    # It grows with the scale: d EI / d scale is the density at 1 / scale.
    slope = norm.pdf(1 / scale) * np.array([0.5, -4.0]) / scale
    np.testing.assert_allclose(jax.grad(function)(x), slope, atol=0.1)


def test_bad_designs_are_named(getkey, as_user):
    enn, key = Hill(GaussianIndex(2), jnp.asarray(0.0)), getkey()
    function = SampledFunction(enn, jnp.zeros(2))
    for bounds, message in (
        (jnp.zeros((3, 2)), "`bounds` must hold two rows"),
        (jnp.array([[0.0, 1.0], [1.0, 1.0]]), "`bounds` must be lower in the first row than in the second; got"),
        (jnp.array([[0.0], [jnp.inf]]), "`bounds` must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            maximize(function, bounds, key=key)
    with pytest.raises(ValueError, match="`num_starts` must be at most `num_candidates`, 4; got 8"):
        maximize(function, BOUNDS, num_candidates=4, key=key)
    with pytest.raises(ValueError, match="`function.x.` must be finite"):
        maximize(lambda x: jnp.sum(x) + jnp.nan, BOUNDS, num_candidates=8, num_steps=1, key=key)
    with pytest.raises(ValueError, match="`z` must have shape .2,.; got .3,."):
        SampledFunction(enn, jnp.zeros(3))
    with pytest.raises(ValueError, match="`draws` must be of the index of `enn`"):
        ImprovementFunction(enn, Draws.all(ParticleIndex(3)), 0.0)


def test_without_botorch_the_extra_is_named(monkeypatch):
    from epinet_eqx.decisions import _botorch

    _botorch._model_class.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    enn = Hill(GaussianIndex(2), jnp.asarray(0.0))
    with pytest.raises(
        ImportError, match=r"`torch` is needed here; install it with `pip install 'epinet_eqx\[botorch\]'`"
    ):
        botorch_model(enn, Draws.given(enn.index, jnp.zeros((1, 2))))
