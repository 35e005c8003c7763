"""Spectral bounds and dropout of channels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from epinet_eqx.baselines import SpectrallyBounded, SpectrallyBoundedStateful, spectral_bound, spectral_norm
from epinet_eqx.bayes import channel_dropout
from epinet_eqx.networks import MLP, AbstractStatefulNetwork, ConvNet, ImageConv, Linear, headless, with_statistics

pytestmark = pytest.mark.once


def test_spectral_norm_is_the_largest_singular_value_with_its_gradient(getkey):
    weight = jr.normal(getkey(), (5, 7))
    left, values, right = jnp.linalg.svd(weight, full_matrices=False)
    norm, gradient = jax.value_and_grad(lambda w: spectral_norm(w, num_iterations=100))(weight)
    assert jnp.allclose(norm, values[0], rtol=1e-5)
    assert jnp.allclose(gradient, jnp.outer(left[:, 0], right[0]), atol=1e-3)
    # A few iterations give a little less, never more; a kernel is read as a matrix; nothing is the norm of nothing.
    few = spectral_norm(jr.normal(getkey(), (40, 40)))
    assert few < 2 * 40**0.5 and spectral_norm(weight) <= values[0] + 1e-5 and spectral_norm(weight) > 0.9 * values[0]
    kernel = jr.normal(getkey(), (4, 3, 2, 2))
    assert jnp.allclose(spectral_norm(kernel), spectral_norm(kernel.reshape(4, 12)), rtol=1e-6)
    assert spectral_norm(jnp.zeros((3, 2))) == 0 and jnp.all(jnp.isfinite(jax.grad(spectral_norm)(jnp.zeros((3, 2)))))


def test_bound_scales_down_what_exceeds_it_and_nothing_else(getkey):
    network = headless(MLP(3, 4, (6, 6), key=getkey()))
    network = eqx.tree_at(lambda n: n.layers[1].weight, network, replace_fn=lambda weight: 0.01 * weight)
    bounded = spectral_bound(network, 0.5, num_iterations=50)
    first, second = bounded.layers[0], bounded.layers[1]
    assert jnp.allclose(jnp.linalg.norm(first.weight, 2), 0.5, rtol=1e-3)
    ratio = first.weight / network.layers[0].weight
    assert jnp.allclose(ratio, ratio[0, 0], rtol=1e-5)
    assert jnp.array_equal(second.weight, network.layers[1].weight)
    chosen = spectral_bound(network, 0.5, where=lambda n: [n.layers[1].weight])
    assert jnp.array_equal(chosen.layers[0].weight, network.layers[0].weight)


def test_bounded_network_is_the_network_with_scaled_weights(getkey):
    network, x = MLP(3, 4, (6,), key=getkey()), jr.normal(getkey(), (3,))
    wrapped = SpectrallyBounded(network, 0.5)
    assert wrapped.feature_dim == 6 and jnp.array_equal(wrapped(x), spectral_bound(network, 0.5)(x))
    assert jnp.array_equal(SpectrallyBounded(network, 100.0)(x), network(x))
    # The scaled network does not change when the weights grow: the gradient along them vanishes.
    grads = eqx.filter_grad(lambda n: jnp.sum(SpectrallyBounded(n, 0.5).with_features(x)[1]))(network)
    first = network.layers[0].weight
    along = jnp.sum(grads.layers[0].weight * first)
    assert jnp.any(grads.layers[0].weight != 0) and jnp.allclose(along, 0.0, atol=1e-3)


class Stateful(AbstractStatefulNetwork):
    """A linear layer and another one, with nothing to keep in the state."""

    first: Linear
    second: Linear
    masked: bool = eqx.field(static=True, default=False)

    @property
    def feature_dim(self):
        return 6

    def with_features(self, x, state, *, key=None):
        features = self.first(x.ravel())
        return self.second(features), features, state

    def stages(self, x, state, *, key=None):
        return {"features": self.first(x.ravel())}

    def with_masks(self):
        return Stateful(self.first, self.second, True)


def test_bound_of_a_network_with_running_statistics(getkey):
    network, state = eqx.nn.make_with_state(Stateful)(Linear(3, 6, key=getkey()), Linear(6, 4, key=getkey()))
    x = jr.normal(getkey(), (3, 1, 1))
    bounded = SpectrallyBoundedStateful(network, 0.5, where=lambda network: [network.first.weight])
    expected = spectral_bound(network, 0.5, where=lambda network: [network.first.weight])
    fixed = with_statistics(bounded, state)
    for found, wanted in zip(fixed.with_features(x), expected.with_features(x, state)[:2], strict=True):
        assert jnp.array_equal(found, wanted)
    assert jnp.array_equal(fixed.stages(x)["features"], expected.first(x.ravel()))
    assert not jnp.allclose(fixed(x), network(x, state)[0]) and jnp.array_equal(
        expected.second.weight, network.second.weight
    )
    assert bounded.feature_dim == 6 and bounded.with_masks().network.masked
    assert jnp.array_equal(fixed.masked(x), fixed(x))


def test_kernels_with_their_outputs_last_are_read_as_such(getkey):
    conv = ImageConv(3, 5, 3, 1, key=getkey())
    norm = jnp.linalg.norm(conv.weight.reshape(-1, 5), 2)
    bounded = spectral_bound(conv, 0.5, num_iterations=50)
    assert jnp.allclose(bounded.weight, conv.weight * (0.5 / norm), rtol=1e-3)
    chosen = spectral_bound((conv,), 0.5, where=lambda pair: [pair[0].weight], num_iterations=50)
    assert jnp.array_equal(chosen[0].weight, bounded.weight)


def test_channel_dropout_of_a_conv_net_with_masks_written_out(getkey):
    network = ConvNet((1, 4, 4), 3, channels=(6, 5), kernels=(3, 3), strides=(1, 2), key=getkey())
    enn, x, z = channel_dropout(network, 0.5), jr.normal(getkey(), (1, 4, 4)), getkey()
    hidden = x
    for number, (conv, size) in enumerate(zip(network.convs, (6, 5), strict=True)):
        mask = 2.0 * jr.bernoulli(jr.fold_in(z, number), 0.5, (size, 1, 1)).astype(float)
        hidden = jax.nn.relu(conv(hidden))
        hidden = hidden * jnp.broadcast_to(mask, hidden.shape)
    assert jnp.allclose(enn(x, z), network.linear(hidden.ravel()), atol=1e-5)
    assert jnp.allclose(channel_dropout(network, 0.0)(x, z), network(x), atol=1e-5)
    # The first convolution runs once per input.
    assert jnp.array_equal(enn.embed(x), jax.nn.relu(network.convs[0](x)))


def test_bad_input_is_named(getkey, as_user):
    with pytest.raises(ValueError, match="`bound` must be finite and at least 1e-06; got 0.0"):
        SpectrallyBounded(MLP(3, 4, (6,), key=getkey()), 0.0)
    with pytest.raises(ValueError, match="`num_iterations` must be a positive integer; got 0"):
        spectral_norm(jnp.eye(2), num_iterations=0)
    with pytest.raises(ValueError, match="`network` must be a `ConvNet` with convolutions; got MLP"):
        channel_dropout(MLP(3, 4, (6,), key=getkey()))
    empty = ConvNet((1, 4, 4), 3, channels=(), kernels=(), strides=(), key=getkey())
    with pytest.raises(ValueError, match="`network` must be a `ConvNet` with convolutions; got one without"):
        channel_dropout(empty)
