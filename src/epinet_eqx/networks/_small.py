"""Small networks: a multi-layer perceptron and a convolutional network."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_positive, check_shape, check_sizes
from .._init import Initializer, truncated_normal
from ._abstract import AbstractNetwork
from ._layers import Conv, Linear, linear_layers


class MLP(AbstractNetwork):
    """A multi-layer perceptron; its features are the concatenation of chosen layers.

    Layer 0 is the input, layers 1 to `len(hidden)` are the hidden layers after their activation; negative numbers
    count from the last hidden layer. The base network of the Neural Testbed has features `(0, -1)`.
    """

    layers: tuple[Linear, ...]
    in_dim: int = eqx.field(static=True)
    feature_layers: tuple[int, ...] = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden: tuple[int, ...],
        *,
        feature_layers: tuple[int, ...] = (-1,),
        activation: Callable[[Array], Array] = jax.nn.relu,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize the network.

        Args:
            in_dim: size of the input vector.
            out_dim: number of outputs (classes).
            hidden: sizes of the hidden layers; may be empty.
            feature_layers: which layers `with_features` exposes.
            activation: activation of the hidden layers.
            initializer: draws the weight and bias of each layer.
            key: random key.
        """
        check_positive("in_dim", in_dim)
        check_positive("out_dim", out_dim)
        check_sizes("hidden", hidden)
        for layer in feature_layers:
            if not -len(hidden) - 1 <= layer <= len(hidden):
                raise ValueError(
                    f"`feature_layers` must name layers from {-len(hidden) - 1} to {len(hidden)}; got {feature_layers}."
                )
        self.layers = linear_layers((in_dim, *hidden, out_dim), initializer=initializer, key=key)
        self.in_dim = in_dim
        self.feature_layers = feature_layers
        self.activation = activation

    @property
    def feature_dim(self) -> int:
        """The size of the feature vector."""
        sizes = (self.in_dim, *(layer.bias.shape[-1] for layer in self.layers[:-1]))
        return sum(sizes[layer] for layer in self.feature_layers)

    def with_features(self, x: Float[Array, " in"]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one example and the chosen layers."""
        check_shape("x", x, (self.in_dim,))
        hiddens = [x]
        for layer in self.layers[:-1]:
            hiddens.append(self.activation(layer(hiddens[-1])))
        features = [hiddens[layer] for layer in self.feature_layers]
        return self.layers[-1](hiddens[-1]), jnp.concatenate(features) if features else jnp.zeros(0)


class ConvNet(AbstractNetwork):
    """Convolutions with ReLU, then a linear layer on the flattened result: the conv priors of Appendix G.

    The features are the flattened result.
    """

    convs: tuple[Conv, ...]
    linear: Linear
    image_shape: tuple[int, int, int] = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        out_dim: int,
        *,
        channels: tuple[int, ...],
        kernels: tuple[int, ...],
        strides: tuple[int, ...],
        activation: Callable[[Array], Array] = jax.nn.relu,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize the network.

        Args:
            image_shape: `(channels, height, width)` of the images.
            out_dim: number of outputs (classes).
            channels: output channels of each convolution.
            kernels: side of each square kernel.
            strides: stride of each convolution.
            activation: activation after each convolution.
            initializer: draws the weight and bias of each layer.
            key: random key.
        """
        check_sizes("image_shape", image_shape)
        check_positive("out_dim", out_dim)
        for name, sizes in (("channels", channels), ("kernels", kernels), ("strides", strides)):
            check_sizes(name, sizes)
            if len(sizes) != len(channels):
                raise ValueError(f"`{name}` must have one entry per convolution, {len(channels)}; got {sizes}.")
        *conv_keys, linear_key = jr.split(key, len(channels) + 1)
        in_channels, height, width = image_shape
        convs = []
        for out_channels, kernel, stride, conv_key in zip(channels, kernels, strides, conv_keys, strict=True):
            convs.append(Conv(in_channels, out_channels, kernel, stride, initializer=initializer, key=conv_key))
            in_channels, height, width = out_channels, -(-height // stride), -(-width // stride)
        self.convs = tuple(convs)
        self.linear = Linear(in_channels * height * width, out_dim, initializer=initializer, key=linear_key)
        self.image_shape = image_shape
        self.activation = activation

    @property
    def feature_dim(self) -> int:
        """The size of the flattened result of the convolutions."""
        return self.linear.weight.shape[-1]

    def with_features(
        self, x: Float[Array, "channels height width"]
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one image, and the flattened result of the convolutions."""
        check_shape("x", x, self.image_shape)
        for conv in self.convs:
            x = self.activation(conv(x))
        features = jnp.ravel(x)
        return self.linear(features), features
