"""Hypermodels and additive priors: closed forms, initialization, cost, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import trainable_mask
from epinet_eqx.bayes import (
    BayesByBackprop,
    Deterministic,
    DiagonalHypermodel,
    IndexedMLP,
    LinearHypermodel,
    split_parameters,
)
from epinet_eqx.combinators import Prior, WithPrior
from epinet_eqx.indices import GaussianIndex, ParticleIndex, ScaledGaussianIndex
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once


# Compiled as a whole, models are made much faster than array by array.
@eqx.filter_jit
def _linear(key, in_dim=3, hidden=(5,), out_dim=4, index_dim=6):
    network = MLP(in_dim, out_dim, hidden, key=jr.fold_in(key, 0))
    return LinearHypermodel(network, ScaledGaussianIndex(index_dim), key=jr.fold_in(key, 1))


@eqx.filter_jit
def _prior(index, key, hidden=(5,)):
    return IndexedMLP(3, 4, hidden, index, key=key)


@eqx.filter_jit
def _network(key):
    return MLP(3, 4, (5,), key=key)


def test_split_parameters_round_trip_keeps_frozen_parts(getkey):
    network = _network(getkey())
    prior = WithPrior(Deterministic(network), Prior(Deterministic(_network(getkey())), 2.0))
    vector, skeleton = split_parameters(prior)
    assert skeleton.size == vector.size == 3 * 5 + 5 + 5 * 4 + 4  # the prior and its scale are no parameters
    assert eqx.tree_equal(skeleton.build(vector), prior)
    assert eqx.tree_equal(skeleton.combine(prior), prior)
    doubled = skeleton.build(2 * vector)
    assert eqx.tree_equal(doubled.prior, prior.prior)
    np.testing.assert_array_equal(doubled.enn.network.layers[1].bias, 2 * network.layers[1].bias)


def test_a_skeleton_is_a_tree_of_arrays(getkey):
    # The activation of Equinox's MLP is a leaf and a function, which `jax.jit` refuses; a hypermodel of it is fine.
    network = eqx.nn.MLP(3, 4, 5, 1, key=getkey())
    enn = DiagonalHypermodel(network)
    x, z = jnp.ones(3), jnp.zeros(enn.index.size)
    np.testing.assert_allclose(jax.jit(lambda enn, x, z: enn(x, z))(enn, x, z), network(x), rtol=1e-5)


def test_parameters_are_affine_in_the_index(getkey):
    enn = _linear(getkey())
    z = enn.index.sample(key=getkey())
    vector = enn.skeleton.flatten(enn.network_at(z))
    np.testing.assert_allclose(vector, np.asarray(enn.weight) @ np.asarray(z) + np.asarray(enn.bias), rtol=1e-5)
    np.testing.assert_array_equal(enn.skeleton.flatten(enn.network_at(jnp.zeros(6))), enn.bias)


def test_initialization_is_the_testbeds(getkey):
    enn = _linear(getkey(), in_dim=100, hidden=(40,), out_dim=50)
    ends = np.cumsum(enn.skeleton.sizes)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        size = end - start
        # Variance one over the mean of fan-in and fan-out; for a bias both are its size.
        assert np.std(enn.weight[start:end]) == pytest.approx(np.sqrt(2 / (6 + size)), rel=0.15)
        assert np.std(enn.bias[start:end]) == pytest.approx(np.sqrt(1 / size), rel=0.3)
    weights = np.asarray(enn.weight[:4000]) * np.sqrt((6 + 4000) / 2)
    assert np.std(weights) == pytest.approx(1, rel=0.02)
    assert np.abs(weights).max() < 2 / 0.8796


def test_testbed_agent_has_seven_numbers_per_parameter(getkey):
    enn = eqx.filter_eval_shape(_linear, getkey(), in_dim=2, hidden=(50, 50), out_dim=2)
    assert enn.skeleton.size == 2802
    assert enn.weight.size + enn.bias.size == 2802 * 7


def test_parameters_are_generated_once_per_index(getkey, optimized):
    enn = _linear(getkey(), in_dim=20, hidden=(30,), index_dim=50)
    zs = enn.index.sample_many(4, key=getkey())

    def flops(num_inputs):
        outputs = jax.jit(lambda x, zs: jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(x))
        compiled = outputs.lower(jnp.ones((num_inputs, 20)), zs).compile()
        cost = compiled.cost_analysis()
        return (cost[0] if isinstance(cost, list) else cost)["flops"]

    generation = 2 * enn.weight.size * 4
    network = 2 * (20 * 30 + 30 * 4) * 4
    # Generating the parameters per input would cost 64 times `generation`.
    assert generation + 64 * network <= flops(64) < 1.3 * (generation + 64 * network)
    assert generation > 20 * network


def test_diagonal_hypermodel_is_bayes_by_backprop_in_other_coordinates(getkey):
    network = _network(getkey())
    diagonal = DiagonalHypermodel(network, scale_init=0.2)
    bayes = BayesByBackprop(network, sigma_init=0.2)
    x, z = jr.normal(getkey(), (3,)), diagonal.index.sample(key=getkey())
    np.testing.assert_allclose(diagonal(x, z), bayes(x, z), rtol=1e-4)
    np.testing.assert_array_equal(diagonal(x, jnp.zeros_like(z)), network(x))


def test_indexed_mlp_is_the_mlp_with_the_weights_of_its_index(getkey):
    prior = _prior(ScaledGaussianIndex(8), getkey(), hidden=(5, 6))
    assert [(layer.start, layer.bias.shape[-1]) for layer in prior.layers] == [(0, 3), (3, 3), (6, 2)]
    for layer, fan_in in zip(prior.layers, (1, 5, 6), strict=True):  # the first layer is not scaled
        np.testing.assert_allclose(np.linalg.norm(layer.weight, axis=-1), fan_in**-0.5, rtol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(layer.bias, axis=-1), 1, rtol=1e-5)
    x, z = np.asarray(jr.normal(getkey(), (3,))), prior.index.sample(key=getkey())
    units = x
    for number, (layer, part) in enumerate(zip(prior.layers, np.split(np.asarray(z), [3, 6]), strict=True)):
        units = np.asarray(layer.weight) @ part @ units + np.asarray(layer.bias) @ part
        units = units if number == 2 else np.maximum(units, 0)
    np.testing.assert_allclose(prior(jnp.asarray(x), z), units, rtol=1e-4, atol=1e-5)


def test_indexed_mlp_shares_an_index_that_is_too_short(getkey):
    prior = _prior(GaussianIndex(1), getkey())
    assert [(layer.start, layer.bias.shape[-1]) for layer in prior.layers] == [(0, 1), (0, 1)]
    # Two layers of ReLU and biases, each linear in the same positive number.
    x, z = jr.normal(getkey(), (3,)), jnp.ones(1)
    hidden = jax.nn.relu(prior.layers[0](x, z))
    np.testing.assert_allclose(
        prior(x, 2 * z), 4 * prior.layers[1].weight[..., 0] @ hidden + 2 * prior.layers[1].bias[:, 0], rtol=1e-4
    )


def test_additive_prior_is_the_sum_and_stays_as_it_is(getkey):
    enn = _linear(getkey())
    prior = _prior(ScaledGaussianIndex(6), getkey())
    both = WithPrior(enn, Prior(prior, 3.0))
    x, zs = jr.normal(getkey(), (3,)), enn.index.sample_many(3, key=getkey())
    expected = enn.heads(enn.embed(x), zs) + 3.0 * prior.heads(prior.embed(x), zs)
    np.testing.assert_allclose(both.heads(both.embed(x), zs), expected, rtol=1e-5)
    np.testing.assert_allclose(both(x, zs[0]), expected[0], rtol=1e-4, atol=1e-6)
    assert not any(jax.tree.leaves(trainable_mask(both).prior))
    gradient = eqx.filter_grad(lambda enn: jnp.sum(enn(x, zs[0])))(both)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient.prior))
    assert np.any(gradient.enn.weight)


def test_bad_input(getkey):
    network = _network(getkey())
    enn = _linear(getkey())
    with pytest.raises(ValueError, match="`index` must be an index with vector values"):
        LinearHypermodel(network, ParticleIndex(3), key=getkey())
    with pytest.raises(ValueError, match="`index` must be an index with vector values"):
        IndexedMLP(3, 4, (5,), ParticleIndex(3), key=getkey())
    with pytest.raises(ValueError, match="`hidden` must hold positive integers"):
        IndexedMLP(3, 4, (0,), GaussianIndex(3), key=getkey())
    with pytest.raises(ValueError, match=r"`scale_init` must be finite and at least 0; got -1\.0"):
        DiagonalHypermodel(network, scale_init=-1.0)
    with pytest.raises(ValueError, match="`module` must have floating-point arrays that are not frozen; got Identity"):
        DiagonalHypermodel(eqx.nn.Identity())
    with pytest.raises(ValueError, match=r"`scale` must be finite and at least 0; got -1\.0"):
        Prior(enn, -1.0)
    for other in (GaussianIndex(6), ScaledGaussianIndex(5), ScaledGaussianIndex(6, 0.5)):
        with pytest.raises(ValueError, match="`prior` must have the index of `enn`"):
            WithPrior(enn, Prior(eqx.tree_at(lambda e: e.index, enn, other)))
    narrow = WithPrior(enn, Prior(_linear(getkey(), out_dim=2)))
    with pytest.raises(ValueError, match="`prior` must have as many outputs as `enn`, 4; got 2"):
        narrow(jnp.ones(3), jnp.ones(6))
    with pytest.raises(ValueError, match=r"`z` must have shape \(6,\); got \(5,\)"):
        enn(jnp.ones(3), jnp.ones(5))
