"""Posterior samples as ENNs: the same functions, bad stacks, blackjax."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import Frozen, freeze
from epinet_eqx.bayes import Deterministic, Ensemble, from_blackjax, from_samples, split_parameters
from epinet_eqx.combinators import Prior, WithPrior
from epinet_eqx.networks import MLP, Linear

pytestmark = pytest.mark.once


@eqx.filter_jit
def _network(key):
    return MLP(3, 4, (5,), key=key)


@pytest.fixture
def module(getkey):
    return _network(getkey())


@pytest.fixture
def samples(getkey):
    return eqx.filter_vmap(_network)(jr.split(getkey(), 5))


def test_each_index_is_one_sample(module, samples, getkey):
    enn = from_samples(module, samples)
    assert isinstance(enn, Ensemble) and enn.index.size == 5
    assert eqx.tree_equal(enn.particles, samples)
    x = jr.normal(getkey(), (3,))
    third = jax.tree.map(lambda leaf: leaf[2], samples)
    np.testing.assert_allclose(enn(x, jnp.asarray(2)), third(x), rtol=1e-5)


def test_samples_may_be_numpy_arrays_and_parameters_only(module, samples):
    parameters = jax.tree.map(np.asarray, eqx.filter(samples, eqx.is_inexact_array))
    assert eqx.tree_equal(from_samples(module, parameters), from_samples(module, samples))


def test_frozen_parts_are_those_of_the_module(getkey):
    module = WithPrior(Deterministic(_network(getkey())), Prior(Deterministic(_network(getkey())), 2.0))
    vector, skeleton = split_parameters(module)
    samples = jax.vmap(skeleton.unflatten)(jnp.stack([vector, 2 * vector, 3 * vector]))
    enn = from_samples(module, samples)
    x = jr.normal(getkey(), (3,))
    np.testing.assert_allclose(enn(x, jnp.asarray(1)), skeleton.build(2 * vector)(x, jnp.asarray(0)), rtol=1e-5)
    assert isinstance(enn.particles.prior.enn, Frozen)


def test_stacks_must_fit(module, samples):
    short = eqx.tree_at(lambda m: m.layers[1].weight, samples, replace_fn=lambda leaf: leaf[:4])
    with pytest.raises(ValueError, match=r"`samples\.layers\[1\]\.weight` must have as many particles as .* 5; got 4"):
        from_samples(module, short)
    missing = eqx.tree_at(lambda m: m.layers[0].bias, samples, None)
    with pytest.raises(ValueError, match=r"`samples` must have a floating-point array `\.layers\[0\]\.bias`"):
        from_samples(module, missing)
    wide = eqx.tree_at(lambda m: m.layers[0].bias, samples, jnp.zeros((5, 6)))
    with pytest.raises(ValueError, match=r"`samples\.layers\[0\]\.bias` must have shape \(5, 5\); got \(5, 6\)"):
        from_samples(module, wide)
    with pytest.raises(ValueError, match=r"`samples` must have no arrays but .* got also \['\.layers\[1\]\.weight'\]"):
        from_samples(freeze(module, lambda m: m.layers[1].weight), samples)
    with pytest.raises(ValueError, match="`samples` must hold arrays with a leading axis"):
        from_samples(module, None)


def test_diverged_samples_are_an_error_unless_dropped(module, samples):
    bad = eqx.tree_at(lambda m: m.layers[0].bias, samples, replace_fn=lambda leaf: leaf.at[1, 0].set(jnp.nan))
    with pytest.raises(ValueError, match=r"`samples` must be finite, but a chain diverged; got 1 non-finite of 5"):
        from_samples(module, bad)
    kept = from_samples(module, bad, drop_nonfinite=True)
    assert kept.index.size == 4
    np.testing.assert_array_equal(kept.particles.layers[1].bias, samples.layers[1].bias[jnp.array([0, 2, 3, 4])])
    worse = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), samples)
    with pytest.raises(ValueError, match="`samples` must hold a finite sample; got 5 non-finite"):
        from_samples(module, worse, drop_nonfinite=True)
    with pytest.raises(ValueError, match="`drop_nonfinite` must be False inside a transformation"):
        eqx.filter_jit(lambda s: from_samples(module, s, drop_nonfinite=True))(samples)
    with pytest.raises(RuntimeError, match="a chain diverged"):
        jax.block_until_ready(eqx.filter_jit(lambda s: from_samples(module, s))(bad))


def test_blackjax_chains(getkey):
    blackjax = pytest.importorskip("blackjax")
    module = Linear(2, 1, key=getkey())
    x = jr.normal(getkey(), (20, 2))
    y = x @ jnp.array([1.0, -2.0])
    vector, skeleton = split_parameters(module)

    def log_density(module):
        errors = y - jax.vmap(module)(x)[:, 0]
        return -50 * jnp.sum(errors**2) - 0.5 * jnp.sum(skeleton.flatten(module) ** 2)

    def run(log_density, position, keys):
        mass = jnp.full(3, 1 / 2000)
        sampler = blackjax.hmc(log_density, step_size=1.0, inverse_mass_matrix=mass, num_integration_steps=5)
        step = lambda state, key: (sampler.step(key, state)[0],) * 2  # noqa: E731
        return jax.lax.scan(step, sampler.init(position), keys)[1]

    # Over the module itself, one chain; and over vectors, two chains.
    states = jax.jit(lambda keys: run(log_density, module, keys))(jr.split(getkey(), 60))
    enn = from_blackjax(module, states)
    assert enn.index.size == 60
    np.testing.assert_array_equal(enn.particles.weight, states.position.weight)
    np.testing.assert_allclose(enn.particles.weight[30:].mean(axis=(0, 1)), [1, -2], atol=0.05)
    flat = lambda vector: log_density(skeleton.build(vector))  # noqa: E731
    keys = jr.split(getkey(), (2, 60))
    with jax.debug_key_reuse(False):  # the checker objects to blackjax's own step under `vmap`
        chains = jax.jit(jax.vmap(lambda keys: run(flat, vector, keys)))(keys)
    enn = from_blackjax(module, chains, num_chains=2)
    assert enn.index.size == 120
    np.testing.assert_array_equal(enn.particles.bias[60:, 0], chains.position[1][:, 2])
    with pytest.raises(ValueError, match=r"`states` must have leading axes for 3 chains and their samples; got shape"):
        from_blackjax(module, chains, num_chains=3)
    with pytest.raises(ValueError, match=r"`states` must hold vectors of 3 parameters; got shape \(2, 60, 3\)"):
        from_blackjax(module, chains.position)
