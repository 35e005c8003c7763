"""ResNets: parameter counts, stages, blocks, dropout, frozen statistics."""

import functools as ft
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import epinet_eqx as epi
from epinet_eqx.bayes import MCDropout
from epinet_eqx.networks import (
    ChannelDropout,
    FixedStatistics,
    ImageConv,
    PostActivationBlock,
    PreActivationBlock,
    cifar_resnet,
    resnet_v1,
    resnet_v2,
    with_statistics,
)
from epinet_eqx.networks._layers import convolve, max_pool
from epinet_eqx.networks._resnet import PadShortcut

pytestmark = pytest.mark.once


def shapes(make, *args, **options):
    """Return a network and its state without allocating their arrays."""
    return eqx.filter_eval_shape(ft.partial(make, *args, **options), key=jr.key(0))


@eqx.filter_jit
def run(network, x, state, key=None):
    """Return outputs, features and the new state of a batch, with one key for all of it."""
    return jax.vmap(
        lambda x, state: network.with_features(x, state, key=key),
        in_axes=(0, None),
        out_axes=(0, 0, None),
        axis_name="batch",
    )(x, state)


@pytest.mark.parametrize(
    ("make", "depth", "num_classes", "expected"),
    [
        (resnet_v2, 50, 1000, 25_549_352),
        (resnet_v2, 101, 1000, 44_541_480),
        (resnet_v2, 152, 1000, 60_185_128),
        (resnet_v2, 200, 1000, 64_666_152),
        (resnet_v1, 18, 1000, 11_689_512),
        (resnet_v1, 34, 1000, 21_797_672),
        (resnet_v1, 50, 1000, 25_557_032),
        (resnet_v1, 101, 1000, 44_549_160),
        (resnet_v1, 152, 1000, 60_192_808),
        (cifar_resnet, 14, 10, 172_506),
        (cifar_resnet, 14, 100, 178_356),
        (cifar_resnet, 20, 10, 269_722),
        (cifar_resnet, 32, 10, 464_154),
        (cifar_resnet, 32, 100, 470_004),
        (cifar_resnet, 44, 10, 658_586),
        (cifar_resnet, 44, 100, 664_436),
        (cifar_resnet, 56, 10, 853_018),
        (cifar_resnet, 56, 100, 858_868),
        (cifar_resnet, 110, 10, 1_727_962),
        (cifar_resnet, 110, 100, 1_733_812),
    ],
)
def test_parameter_counts(make, depth, num_classes, expected):
    network, _ = shapes(make, depth, num_classes)
    leaves = [leaf for leaf in jax.tree.leaves(network) if isinstance(leaf, jax.ShapeDtypeStruct)]
    assert sum(math.prod(leaf.shape) for leaf in leaves) == expected


IMAGENET = [("stem", (64, 56, 56)), ("group1", (256, 56, 56)), ("group2", (512, 28, 28)), ("group3", (1024, 14, 14))]
IMAGENET += [("group4", (2048, 7, 7)), ("features", (2048,)), ("output", (1000,))]
BASIC = [("stem", (64, 56, 56)), ("group1", (64, 56, 56)), ("group2", (128, 28, 28)), ("group3", (256, 14, 14))]
BASIC += [("group4", (512, 7, 7)), ("features", (512,)), ("output", (1000,))]
CIFAR = [("stem", (16, 32, 32)), ("group1", (16, 32, 32)), ("group2", (32, 16, 16)), ("group3", (64, 8, 8))]
CIFAR += [("features", (64,)), ("output", (10,))]


@pytest.mark.parametrize("padding", ["same", "symmetric"])
@pytest.mark.parametrize(
    ("make", "depth", "side", "expected"),
    [(resnet_v2, 50, 224, IMAGENET), (resnet_v1, 18, 224, BASIC), (cifar_resnet, 20, 32, CIFAR)],
)
def test_every_stage_is_exposed(make, depth, side, expected, padding):
    network, state = shapes(make, depth, padding=padding)
    network = eqx.nn.inference_mode(network)
    image = jax.ShapeDtypeStruct((3, side, side), jnp.float32)
    found = eqx.filter_eval_shape(network.stages, image, state)
    assert {name: value.shape for name, value in found.items()} == dict(expected)
    assert network.feature_dim == found["features"].shape[0]


def test_output_is_linear_in_the_features_and_starts_at_zero(getkey):
    network, state = cifar_resnet(8, key=getkey())
    x = jr.normal(getkey(), (2, 3, 16, 16))
    assert jnp.array_equal(run(network, x, state)[0], jnp.zeros((2, 10)))
    network = eqx.tree_at(lambda n: n.linear.weight, network, jr.normal(getkey(), (10, 64)))
    fixed = with_statistics(network, state)
    output, features = fixed.with_features(x[0])
    stages = fixed.stages(x[0])
    assert jnp.array_equal(output, fixed(x[0])) and jnp.allclose(output, network.linear(features))
    assert jnp.allclose(stages["output"], output) and jnp.allclose(stages["features"], features)
    assert jnp.allclose(jnp.mean(stages["group3"], axis=(1, 2)), features)


def test_statistics_of_one_batch_are_enough_for_inference(getkey):
    network, state = cifar_resnet(8, key=getkey())
    x = 3 * jr.normal(getkey(), (8, 3, 16, 16)) + 1
    _, features, state = run(network, x, state)
    later = jax.vmap(with_statistics(network, state).with_features)(x)[1]
    # The running variances are larger by n / (n - 1), at most 1/127 in the last group.
    assert jnp.allclose(later, features, atol=0.02) and jnp.std(features) > 0.1


def test_half_precision_keeps_single_precision_statistics(getkey):
    network, state = cifar_resnet(8, key=getkey())
    x = jr.normal(getkey(), (4, 3, 16, 16))
    halved = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, network)
    _, features, after = run(network, x, state)
    _, half_features, half_after = run(halved, x, state)
    assert half_features.dtype == jnp.bfloat16
    assert jnp.allclose(half_features.astype(jnp.float32), features, atol=0.05)
    assert [leaf.dtype for leaf in jax.tree.leaves(half_after)] == [leaf.dtype for leaf in jax.tree.leaves(after)]


def test_paddings_differ_in_where_a_stride_begins():
    image = jnp.arange(16.0).reshape(4, 4, 1)
    for padding, before in (("same", 0), ("symmetric", 1)):
        conv = ImageConv(1, 1, 3, 2, padding=padding, initializer=lambda *_: (jnp.ones((1, 1, 3, 3)), 0), key=jr.key(0))
        padded = jnp.pad(image[..., 0], ((before, 1), (before, 1)))
        windows = jnp.array([[padded[r : r + 3, c : c + 3] for c in (0, 2)] for r in (0, 2)])
        assert jnp.allclose(conv(image)[..., 0], windows.sum((2, 3)))
        # Nothing outside the image is ever a maximum.
        pooled = max_pool(image - 100, padding)[..., 0]
        low = jnp.pad(image[..., 0] - 100, ((before, 1), (before, 1)), constant_values=-jnp.inf)
        windows = jnp.array([[low[r : r + 3, c : c + 3] for c in (0, 2)] for r in (0, 2)])
        assert jnp.array_equal(pooled, windows.max((2, 3)))
        # Each maximum has one pixel that its gradient goes to.
        assert jnp.sum(jax.grad(lambda x, padding=padding: jnp.sum(max_pool(x, padding)))(image)) == 4


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("kernel", "stride", "shape"), [(3, 1, (5, 6)), (3, 2, (6, 5)), (1, 2, (5, 6)), (5, 3, (7, 9))]
)
def test_convolution_has_the_usual_derivatives(kernel, stride, shape, same, getkey):
    x, weight = jr.normal(getkey(), (*shape, 2)), jr.normal(getkey(), (kernel, kernel, 2, 3))
    pads = "SAME" if same else [(kernel // 2, kernel // 2)] * 2

    def usual(x, weight):
        return jax.lax.conv_general_dilated(
            x[None], weight, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]

    output, pull = jax.vjp(usual, x, weight)
    ours, our_pull = jax.vjp(lambda x, weight: convolve(x, weight, stride, same=same), x, weight)
    assert jnp.allclose(ours, output, atol=1e-5)
    change = jr.normal(getkey(), output.shape)
    for expected, found in zip(pull(change), our_pull(change), strict=True):
        assert jnp.allclose(found, expected, atol=1e-4)


def test_padded_shortcut_subsamples_and_adds_channels_of_zeros():
    image = jnp.arange(32.0).reshape(4, 4, 2)
    output, _ = PadShortcut(2, 2)(image, eqx.nn.State(()))
    assert output.shape == (2, 2, 4)
    assert jnp.array_equal(output[..., 1:3], image[::2, ::2]) and not jnp.any(output[..., ::3])


def test_a_block_without_branch_is_the_identity_or_its_positive_part(getkey):
    x = jr.normal(getkey(), (4, 4, 8))
    zeros = lambda key, shape: (jnp.zeros(shape), jnp.zeros(shape[0]))  # noqa: E731
    for make, expected in ((PreActivationBlock, x), (PostActivationBlock, jax.nn.relu(x))):
        block, state = eqx.nn.make_with_state(make)(8, 8, 1, bottleneck=True, initializer=zeros, key=getkey())
        output, _ = eqx.nn.inference_mode(block)(x, state, lambda x, place: x)
        assert jnp.allclose(output, expected)


def test_dropout_drops_channels_and_keeps_the_mean(getkey):
    dropout = ChannelDropout(0.25)
    output = dropout(jnp.ones((2, 2, 4000)), key=getkey())
    assert jnp.array_equal(output, jnp.broadcast_to(output[:1, :1], output.shape))
    assert np.allclose(np.unique(output), [0, 4 / 3]) and abs(float(jnp.mean(output)) - 1) < 0.03


def test_dropout_variant_is_an_enn(getkey):
    network, state = cifar_resnet(8, dropout=0.3, key=getkey())
    network = eqx.tree_at(lambda n: n.linear.weight, network, jr.normal(getkey(), (10, 64)))
    x = jr.normal(getkey(), (3, 3, 16, 16))
    _, _, state = run(network, x, state)
    fixed = with_statistics(network, state)
    enn = MCDropout(fixed.masked)
    samples = epi.predict.sample(enn, x, epi.Draws.sample(enn.index, 4, key=getkey())).outputs
    assert jnp.unique(samples[:, 0, 0]).size == 4
    # Without masks, and in inference mode even with a key, it is the network itself.
    plain = jax.vmap(fixed)(x)
    assert jnp.allclose(jax.vmap(fixed.masked)(x), plain, atol=1e-5)
    assert jnp.allclose(run(eqx.nn.inference_mode(network), x, state, getkey())[0], plain, atol=1e-5)


def test_masks_have_streams_of_their_own(getkey):
    network, _ = cifar_resnet(8, dropout=0.5, key=getkey())
    ones = jnp.ones((1, 1, 64))
    masks = [network._drop(ones, place, jr.key(0), block) for place in range(2) for block in range(3)]
    assert np.unique(np.stack(masks)[:, 0, 0], axis=0).shape == (6, 64)


def test_projected_shortcuts_and_pre_activation_drop_too(getkey):
    x, state = jr.normal(getkey(), (4, 4, 8)), None
    for make, options in ((PreActivationBlock, {}), (PostActivationBlock, {"bottleneck": True})):
        block, state = eqx.nn.make_with_state(make)(8, 16, 2, **options, key=getkey())
        places = []
        eqx.nn.inference_mode(block)(x, state, lambda x, place, places=places: (places.append(place), x)[1])
        assert sorted(places) == [0, 1, 2]


def test_an_epinet_on_frozen_statistics(getkey, tmp_path):
    network, state = cifar_resnet(8, key=getkey())
    x = jr.normal(getkey(), (4, 3, 16, 16))
    _, _, state = run(network, x, state)
    fixed = with_statistics(network, state)
    mask = epi.trainable_mask(fixed)
    assert not any(jax.tree.leaves(mask.state)) and mask.network.stem.conv.weight
    enn = epi.attach(fixed, out_size=10, index_dim=3, key=getkey())
    samples = epi.predict.sample(enn, x, epi.Draws.sample(enn.index, 2, key=getkey())).outputs
    assert samples.shape == (2, 4, 10)
    epi.save(tmp_path / "enn.safetensors", enn)
    like = eqx.filter_eval_shape(lambda enn: enn, enn)
    loaded = epi.load(tmp_path / "enn.safetensors", like)
    assert isinstance(loaded.base.content, FixedStatistics)
    assert jnp.allclose(loaded.base.content.with_features(x[0])[1], fixed.with_features(x[0])[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resnet_v1(51, key=jr.key(0)), "`depth` must be one of 18, 34, 50, 101, 152; got 51"),
        (lambda: resnet_v2(18, key=jr.key(0)), "`depth` must be one of 50, 101, 152, 200; got 18"),
        (lambda: cifar_resnet(18, key=jr.key(0)), r"`depth` must be 6 n \+ 2 for a positive integer n; got 18"),
        (lambda: cifar_resnet(8, 0, key=jr.key(0)), "`num_classes` must be a positive integer; got 0"),
        (lambda: cifar_resnet(8, dropout=1.0, key=jr.key(0)), r"`dropout` must be in \[0, 1\); got 1.0"),
        (
            lambda: eqx.filter_eval_shape(
                lambda pair: pair[0](jnp.zeros((16, 16, 3)), pair[1]), shapes(cifar_resnet, 8)
            ),
            r"`x` must have shape \(3, height, width\); got \(16, 16, 3\)",
        ),
    ],
)
def test_bad_input_is_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_padding_and_missing_dropout_are_sentences(getkey, as_user):
    with pytest.raises(ValueError, match='`padding` must be "same" or "symmetric"; got \'valid\''):
        cifar_resnet(8, padding="valid", key=getkey())
    network, _ = shapes(cifar_resnet, 8)
    with pytest.raises(ValueError, match="`dropout` must have been given to the network"):
        network.with_masks()
