"""Monte Carlo dropout as an ENN: masks, their moments, sharing over inputs, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from epinet_eqx import trainable_mask
from epinet_eqx.bayes import Deterministic, Dropout, DropoutChain, MCDropout, dropout_mlp
from epinet_eqx.indices import KeyIndex
from epinet_eqx.networks import Conv, Linear

pytestmark = pytest.mark.once


def test_key_index_draws_different_keys_and_normal_scores(getkey):
    index, key = KeyIndex(), getkey()
    zs = index.sample_many(2000, key=key)
    assert zs.shape == (2000, *index.shape) and index.size == 1
    assert len(jnp.unique(jr.key_data(zs), axis=0)) == 2000
    score_keys = jr.split(getkey(), 2)
    scores = jax.vmap(lambda key: jax.vmap(lambda z: index.score(z, key=key))(zs))(score_keys)
    # Four standard errors of the mean, the variance and the correlation of 2000 draws.
    assert jnp.all(jnp.abs(jnp.mean(scores, 1)) < 4 / 2000**0.5)
    assert jnp.all(jnp.abs(jnp.var(scores, 1) - 1) < 4 * (2 / 2000) ** 0.5)
    assert abs(jnp.corrcoef(scores)[0, 1]) < 4 / 2000**0.5


def test_mask_is_zero_or_inverse_of_the_probability_of_staying(getkey):
    layer = Dropout(0.25)
    masks = jax.vmap(lambda key: layer(jnp.ones(50), key=key))(jr.split(getkey(), 200))
    assert jnp.all((masks == 0) | jnp.isclose(masks, 1 / 0.75))
    # Four standard errors of the mean of 10,000 draws with variance rate / (1 - rate).
    assert abs(jnp.mean(masks) - 1) < 4 * (0.25 / 0.75 / 10_000) ** 0.5


def test_channelwise_mask_drops_whole_channels(getkey):
    x = jr.uniform(getkey(), (40, 3, 2), minval=1.0, maxval=2.0)
    ratio = Dropout(0.5, channelwise=True)(x, key=getkey()) / x
    assert jnp.array_equal(ratio.min(axis=(1, 2)), ratio.max(axis=(1, 2)))
    assert jnp.allclose(jnp.unique(ratio), jnp.array([0.0, 2.0]))
    elementwise = Dropout(0.5)(x, key=getkey()) / x
    assert not jnp.array_equal(elementwise.min(axis=(1, 2)), elementwise.max(axis=(1, 2)))


def test_output_with_masks_written_out(getkey):
    enn, x, z = dropout_mlp(3, 4, (8, 7), rate=0.3, key=getkey()), jr.normal(getkey(), (3,)), getkey()
    first = enn.trunk.layers[0]
    _, _, second, _, _, third = enn.network.layers
    masks = [jr.bernoulli(jr.fold_in(z, n), 0.7, (size,)) for n, size in enumerate((8, 7))]
    hidden = jax.nn.relu(jnp.where(masks[0], first(x) / 0.7, 0.0))
    hidden = jax.nn.relu(jnp.where(masks[1], second(hidden) / 0.7, 0.0))
    assert jnp.allclose(enn(x, z), third(hidden), atol=1e-6)
    assert jnp.allclose(enn.embed(x), first(x))


def test_one_mask_for_all_inputs_and_another_for_each_index(getkey):
    # A linear network with one mask is linear: additive over inputs if and only if they share the mask.
    layers = [Dropout(0.5), Linear(3, 20, key=getkey()), Dropout(0.5), Linear(20, 4, key=getkey())]
    enn = MCDropout.of(layers)
    x = jr.normal(getkey(), (2, 3))
    zs = enn.index.sample_many(3, key=getkey())
    outputs = jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(jnp.concatenate([x, x.sum(0, keepdims=True)]))
    assert jnp.allclose(outputs[0] + outputs[1], outputs[2], atol=1e-5)
    assert not jnp.allclose(outputs[:, 0], outputs[:, 1])


def test_rate_zero_is_the_network_without_dropout(getkey):
    enn, x = dropout_mlp(3, 4, (8,), rate=0.0, dropout_input=True, key=getkey()), jr.normal(getkey(), (3,))
    assert enn.trunk is None
    assert jnp.allclose(enn(x, getkey()), Deterministic(enn.network)(x, jnp.array(0)), atol=1e-6)


def test_first_layer_runs_once_per_input(getkey, optimized):
    # In 64 inputs and 16 indices the wide first layer is counted 64 times, not 1024 times.
    enn = dropout_mlp(400, 2, (10,), key=getkey())
    zs = enn.index.sample_many(16, key=getkey())

    def outputs(x):
        return jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(x)

    flops = jax.jit(outputs).lower(jnp.zeros((64, 400))).compile().cost_analysis()["flops"]
    assert flops < 2 * (64 * 2 * 400 * 10)


def test_conv_layers_with_channel_masks(getkey):
    conv, linear = Conv(2, 6, 3, 1, key=getkey()), Linear(6 * 16, 3, key=getkey())
    enn = MCDropout.of([conv, Dropout(0.5, channelwise=True), jax.nn.relu, jnp.ravel, linear])
    x, z = jr.normal(getkey(), (2, 4, 4)), getkey()
    mask = jr.bernoulli(jr.fold_in(z, 0), 0.5, (6, 1, 1))
    hidden = jnp.where(jnp.broadcast_to(mask, (6, 4, 4)), 2 * jax.nn.relu(conv(x)), 0.0)
    assert jnp.allclose(enn(x, z), linear(jnp.ravel(hidden)), atol=1e-5)


def test_same_key_same_masks_for_a_module_of_equinox(getkey):
    layers = [eqx.nn.Linear(3, 8, key=getkey()), eqx.nn.Dropout(0.5), eqx.nn.Linear(8, 4, key=getkey())]
    enn, x, z = MCDropout(eqx.nn.Sequential(layers)), jr.normal(getkey(), (3,)), getkey()
    assert jnp.array_equal(enn(x, z), enn(x, z))
    assert not jnp.allclose(enn(x, z), enn(x, getkey()))


def test_rate_is_frozen_and_sweeping_it_compiles_once(getkey):
    enn = dropout_mlp(3, 4, (8,), key=getkey())
    assert not trainable_mask(enn).network.layers[0].rate.content
    traces = 0
    x, z = jr.normal(getkey(), (3,)), getkey()

    @eqx.filter_jit
    def output(rate):
        nonlocal traces
        traces += 1
        return Dropout(rate)(x, key=jr.clone(z))

    for rate in (0.0, 0.1, 0.5):
        output(jnp.array(rate))
    assert traces == 1


def test_bad_input_is_refused(getkey):
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"`rate` must be in \[0, 1\); got"):
            Dropout(rate)
    with pytest.raises(RuntimeError, match=r"`rate` must be in \[0, 1\)"):
        eqx.filter_jit(lambda rate: Dropout(rate)(jnp.ones(3), key=jr.key(0)))(jnp.array(1.5))
    with pytest.raises(ValueError, match="`layers` must have at least one `Dropout`"):
        MCDropout.of([Linear(3, 4, key=getkey())])
    with pytest.raises(ValueError, match="`hidden` must have at least one layer"):
        dropout_mlp(3, 4, (), key=getkey())


def test_chain_without_a_key_drops_nothing(getkey):
    linear, x = Linear(3, 4, key=getkey()), jr.normal(getkey(), (3,))
    assert jnp.array_equal(DropoutChain((Dropout(0.9), linear, Dropout(0.9)))(x), linear(x))
