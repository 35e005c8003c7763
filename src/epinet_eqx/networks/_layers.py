"""Layers: linear maps and convolutions, for one example."""

import functools as ft
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Scalar, check_share
from .._init import Initializer, truncated_normal
from .._tree import Frozen
from .._xla import hide_constant, jit_constructor

# XLA calls the fast convolution of a CPU only if images have their channels last and kernels are (height, width, in,
# out). It converts other forms, but not inside a compiled loop, where they, and above all the usual derivatives, are
# about fifty times slower (https://github.com/jax-ml/jax/issues/12868). So this form is kept throughout, and on a CPU
# the derivatives are written in it too.
_FORM = ("NHWC", "HWIO", "NHWC")
_Pads: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


def _forward(
    x: Float[Array, "batch height width in"], weight: Float[Array, "kernel kernel in out"], stride: int, pads: _Pads
) -> Float[Array, "batch height_out width_out out"]:
    """Return the convolution, with the usual derivatives."""
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), pads, dimension_numbers=_FORM)


def _backward(
    x: Float[Array, "batch height width in"],
    weight: Float[Array, "kernel kernel in out"],
    change: Float[Array, "batch height_out width_out out"],
    stride: int,
    pads: _Pads,
) -> tuple[Float[Array, "batch height width in"], Float[Array, "kernel kernel in out"]]:
    """Return the derivatives with respect to image and kernel, as convolutions in the fast form."""
    kernel = weight.shape[0]
    # The pixels between the first and the last window's first pixel.
    spans = [(size - 1) * stride + 1 for size in change.shape[1:3]]
    around = [
        (kernel - 1 - before, size + before - span)
        for (before, _), size, span in zip(pads, x.shape[1:3], spans, strict=True)
    ]
    flipped = jnp.transpose(jnp.flip(weight, (0, 1)), (0, 1, 3, 2))
    to_image = jax.lax.conv_general_dilated(
        change, flipped, (1, 1), around, lhs_dilation=(stride, stride), dimension_numbers=_FORM
    )
    seen = jnp.pad(x, ((0, 0), *pads, (0, 0)))[:, : spans[0] + kernel - 1, : spans[1] + kernel - 1]
    # The batch takes the role of the input channels, which are summed over.
    to_kernel = jax.lax.conv_general_dilated(
        jnp.transpose(seen, (3, 1, 2, 0)),
        jnp.transpose(change, (1, 2, 0, 3)),
        (1, 1),
        "VALID",
        rhs_dilation=(stride, stride),
        dimension_numbers=_FORM,
    )
    return to_image, jnp.transpose(to_kernel, (1, 2, 0, 3))


@ft.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(
    x: Float[Array, "batch height width in"], weight: Float[Array, "kernel kernel in out"], stride: int, pads: _Pads
) -> Float[Array, "batch height_out width_out out"]:
    """Return the convolution, with derivatives that suit the platform."""
    return _forward(x, weight, stride, pads)


def _convolve_forward(x: Array, weight: Array, stride: int, pads: _Pads) -> tuple[Array, tuple[Array, Array]]:
    """Return the convolution and the residuals of its derivatives."""
    return _forward(x, weight, stride, pads), (x, weight)


def _convolve_backward(stride: int, pads: _Pads, saved: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    """Return the derivatives."""

    def usual(x: Array, weight: Array, change: Array) -> tuple[Array, Array]:
        return jax.vjp(lambda x, weight: _forward(x, weight, stride, pads), x, weight)[1](change)

    return jax.lax.platform_dependent(
        *saved, change, cpu=ft.partial(_backward, stride=stride, pads=pads), default=usual
    )


_convolve.defvjp(_convolve_forward, _convolve_backward)


def paddings(shape: tuple[int, ...], kernel: int, stride: int, *, same: bool) -> _Pads:
    """Return the pixels to add around an image: as TensorFlow's "SAME" does, or half a kernel on every side."""
    if not same:
        return ((kernel // 2, kernel // 2), (kernel // 2, kernel // 2))
    above, left = jax.lax.padtype_to_pads(shape, (kernel, kernel), (stride, stride), "SAME")
    return ((above[0], above[1]), (left[0], left[1]))


def convolve(
    x: Float[Array, "height width in"], weight: Float[Array, "kernel kernel in out"], stride: int, *, same: bool
) -> Float[Array, "height_out width_out out"]:
    """Return the convolution of one image; only reverse-mode derivatives are defined.

    Args:
        x: the image.
        weight: the kernels.
        stride: the stride along both axes.
        same: whether to pad as TensorFlow's "SAME" does, or by half a kernel on every side.
    """
    pads = paddings(x.shape[:2], weight.shape[0], stride, same=same)
    return _convolve(x[None], weight, stride, pads)[0]  # pyright: ignore[reportIndexIssue]


Padding: TypeAlias = Literal["same", "symmetric"]


def check_padding(padding: str) -> None:
    """Raise unless `padding` is one of the two kinds."""
    if padding not in ("same", "symmetric"):
        raise ValueError(f'`padding` must be "same" or "symmetric"; got {padding!r}.')


class ImageConv(eqx.Module):
    """A convolution without bias.

    "same" pads as TensorFlow and Haiku do, at stride 2 mostly at the far side; "symmetric" pads half a kernel on both
    sides as PyTorch's networks do. They differ only at strides above 1.
    """

    weight: Float[Array, "kernel kernel in out"]
    stride: int = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int,
        *,
        padding: Padding = "same",
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize from sizes."""
        weight, _ = initializer(key, (out_channels, in_channels, kernel, kernel))
        self.weight = jnp.transpose(weight, (2, 3, 1, 0))
        self.stride = stride
        self.padding = padding

    def __call__(self, x: Float[Array, "height width in"]) -> Float[Array, "height_out width_out out"]:
        """Return the convolution of one image."""
        return convolve(x, self.weight, self.stride, same=self.padding == "same")


def max_pool(
    x: Float[Array, "height width channels"], padding: Padding
) -> Float[Array, "height_out width_out channels"]:
    """Return the maxima over 3x3 windows at stride 2."""
    pads = "SAME" if padding == "same" else [(1, 1), (1, 1), (0, 0)]
    # A NumPy constant: a JAX array would be traced under `jit`, and XLA would not recognize a plain maximum, which is
    # the only one with a gradient.
    lowest = np.array(-np.inf, x.dtype)
    return jax.lax.reduce_window(x, lowest, jax.lax.max, (3, 3, 1), (2, 2, 1), pads)


class ChannelDropout(eqx.Module):
    """Sets random channels (the last axis) to zero and divides the others by the keep probability."""

    rate: Frozen[Float[Array, ""]]
    inference: bool

    def __init__(self, rate: Scalar):
        """Initialize with the probability of being dropped, an array so that sweeping it compiles once."""
        self.rate = Frozen(check_share("dropout", rate, below_one=True))
        self.inference = False

    def __call__(self, x: Float[Array, "height width channels"], *, key: PRNGKeyArray | None) -> Float[Array, "..."]:
        """Return `x` with the mask of `key`, or unchanged without a key and in inference mode."""
        if key is None or self.inference:
            return x
        kept = 1 - self.rate.value
        mask = jnp.where(jr.bernoulli(key, kept, x.shape[-1:]), 1 / kept, 0.0).astype(x.dtype)
        return x * mask[None, None]


class Linear(eqx.Module):
    """An affine map with a chosen initializer."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]

    def __init__(self, in_dim: int, out_dim: int, *, initializer: Initializer = truncated_normal, key: PRNGKeyArray):
        """Initialize from sizes."""
        self.weight, self.bias = initializer(key, (out_dim, in_dim))

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """Return `W x + b`."""
        return hide_constant(self.weight, x) @ x + self.bias


@jit_constructor
def linear_layers(sizes: tuple[int, ...], *, initializer: Initializer, key: PRNGKeyArray) -> tuple[Linear, ...]:
    """Return the layers between these sizes, each drawn with its own key."""
    keys = jr.split(key, len(sizes) - 1)
    return tuple(
        Linear(size_in, size_out, initializer=initializer, key=layer_key)
        for size_in, size_out, layer_key in zip(sizes[:-1], sizes[1:], keys, strict=True)
    )


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
