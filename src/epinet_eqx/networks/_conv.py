"""A small convolutional network."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_positive, check_shape, check_sizes
from .._init import Initializer, truncated_normal
from ._abstract import AbstractNetwork
from ._convolve import convolve
from ._mlp import Linear


class Conv(eqx.Module):
    """A two-dimensional convolution with "SAME" padding."""

    weight: Float[Array, "out in kernel kernel"]
    bias: Float[Array, " out"]
    stride: int = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int,
        *,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize from sizes."""
        self.weight, self.bias = initializer(key, (out_channels, in_channels, kernel, kernel))
        self.stride = stride

    def __call__(self, x: Float[Array, "in height width"]) -> Float[Array, "out height_out width_out"]:
        """Return the convolution of one image."""
        weight = jnp.transpose(self.weight, (2, 3, 1, 0))
        output = convolve(jnp.transpose(x, (1, 2, 0)), weight, self.stride, same=True)
        return jnp.transpose(output, (2, 0, 1)) + self.bias[:, None, None]


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
