"""Conventional networks and initializers: shapes, features, parameter counts, moments."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from epinet_eqx._tree import count_parameters
from epinet_eqx.networks import (
    MLP,
    Conv,
    ConvNet,
    FunctionNetwork,
    Linear,
    equinox_uniform,
    glorot_uniform,
    truncated_normal,
    truncated_normal_with_bias,
)

pytestmark = pytest.mark.once


def test_mlp_exposes_the_chosen_layers(getkey):
    mlp = MLP(3, 2, (5, 4), feature_layers=(0, 1, -1), key=getkey())
    x = jr.normal(getkey(), (3,))
    first = jax.nn.relu(mlp.layers[0](x))
    second = jax.nn.relu(mlp.layers[1](first))
    output, features = mlp.with_features(x)
    assert jnp.allclose(features, jnp.concatenate([x, first, second]))
    assert jnp.allclose(output, mlp.layers[2](second)) and jnp.array_equal(output, mlp(x))
    assert mlp.feature_dim == features.size == 12


def test_mlp_without_hidden_layers_is_affine(getkey):
    mlp = MLP(3, 2, (), feature_layers=(0,), key=getkey())
    x = jr.normal(getkey(), (3,))
    assert jnp.allclose(mlp(x), mlp.layers[0].weight @ x + mlp.layers[0].bias)


def test_a_constructor_draws_all_layers_in_one_program(getkey, caplog):
    key, make = getkey(), lambda key: MLP(3, 2, (7, 6), key=key)
    with jax.log_compiles():
        mlp = make(key)
    compiled = [record for record in caplog.records if record.getMessage().startswith("Compiling")]
    assert len([record for record in compiled if "linear_layers" in record.getMessage()]) == 1
    assert len(compiled) <= 2  # The other one copies the key.
    # Inside another program it is a part of that one; the numbers are those of one layer after another.
    keys = jr.split(jr.clone(key), 3)
    parts = [Linear(*sizes, key=own) for sizes, own in zip([(3, 7), (7, 6), (6, 2)], keys, strict=True)]
    many = eqx.filter_vmap(make)(jr.clone(key)[None])
    for traced in (eqx.filter_jit(make)(jr.clone(key)), jax.tree.map(lambda leaf: leaf[0], many)):
        for layer, one, part in zip(mlp.layers, traced.layers, parts, strict=True):
            assert jnp.array_equal(layer.weight, one.weight) and jnp.array_equal(layer.weight, part.weight)


def test_parameter_counts_of_the_paper(getkey):
    # The Neural Testbed's base network at D = 10, and one member of CIFAR-10's and of ImageNet's conv prior.
    assert count_parameters(MLP(10, 2, (50, 50), key=getkey())) == 10 * 50 + 50 + 50 * 50 + 50 + 50 * 2 + 2
    cifar = ConvNet((3, 32, 32), 10, channels=(4, 8, 4), kernels=(5, 5, 5), strides=(2, 2, 2), key=getkey())
    assert count_parameters(cifar) == 2566 and cifar.feature_dim == 64
    imagenet = ConvNet((3, 224, 224), 1000, channels=(4, 8, 8), kernels=(10, 10, 3), strides=(5, 5, 2), key=getkey())
    assert count_parameters(imagenet) == 205_996 and imagenet.feature_dim == 200


def test_convolution_is_same_padded_and_strided(getkey):
    conv = Conv(1, 1, 3, 2, initializer=lambda key, shape: (jnp.ones(shape), jnp.zeros(1)), key=getkey())
    image = jnp.arange(16.0).reshape(1, 4, 4)
    # "SAME" at stride 2 and kernel 3 pads one row below and one column to the right.
    padded = jnp.pad(image[0], ((0, 1), (0, 1)))
    expected = [[padded[r : r + 3, c : c + 3].sum() for c in (0, 2)] for r in (0, 2)]
    assert jnp.allclose(conv(image)[0], jnp.array(expected))


@pytest.mark.parametrize(
    ("initializer", "weight_std", "bias_std"),
    [
        (truncated_normal, 0.8796 / math.sqrt(400), 0.0),
        (truncated_normal_with_bias, 0.8796 / math.sqrt(400), 0.8796 / math.sqrt(400)),
        (glorot_uniform, math.sqrt(2 / 700), 0.0),
        (equinox_uniform, 1 / math.sqrt(3 * 400), 1 / math.sqrt(3 * 400)),
    ],
)
def test_initializers_have_their_standard_deviations(initializer, weight_std, bias_std, getkey):
    weight, bias = initializer(getkey(), (300, 400))
    assert jnp.allclose(jnp.std(weight), weight_std, rtol=0.02)
    assert jnp.allclose(jnp.std(bias), bias_std, rtol=0.15)


def test_initializer_of_a_convolution_counts_the_kernel(getkey):
    weight, _ = truncated_normal(getkey(), (64, 16, 5, 5))
    assert jnp.allclose(jnp.std(weight), 0.8796 / math.sqrt(400), rtol=0.03)


def test_function_network_takes_features_from_either_place():
    x = jnp.arange(3.0)
    outside = FunctionNetwork(lambda x: x[:2], lambda x: 2 * x)
    inside = FunctionNetwork(lambda x: (x[:2], 2 * x))
    for network in (outside, inside):
        output, features = network.with_features(x)
        assert jnp.array_equal(output, x[:2]) and jnp.array_equal(features, 2 * x)
    with pytest.raises(ValueError, match=r"`base` must return a pair"):
        FunctionNetwork(lambda x: x).with_features(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda key: MLP(0, 2, (5,), key=key), "`in_dim` must be a positive integer; got 0"),
        (lambda key: MLP(3, 2, (5, 0), key=key), r"`hidden` must hold positive integers only; got \(5, 0\)"),
        (lambda key: MLP(3, 2, (5,), feature_layers=(2,), key=key), "`feature_layers` must name layers from -2 to 1"),
        (lambda key: MLP(3, 2, (5,), key=key)(jnp.zeros(4)), r"`x` must have shape \(3,\); got \(4,\)"),
        (
            lambda key: ConvNet((3, 8, 8), 2, channels=(4, 4), kernels=(3,), strides=(2, 2), key=key),
            r"`kernels` must have one entry per convolution, 2; got \(3,\)",
        ),
    ],
)
def test_bad_input_is_a_sentence(make, message, getkey):
    with pytest.raises(ValueError, match=message):
        make(getkey())
