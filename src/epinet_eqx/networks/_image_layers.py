"""The layers of image networks, for one image with its channels last."""

from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import is_traced, require
from .._init import Initializer, truncated_normal
from .._tree import Frozen
from ._convolve import convolve

Padding: TypeAlias = Literal["same", "symmetric"]


def check_padding(padding: str) -> None:
    """Raise unless `padding` is one of the two kinds."""
    if padding not in ("same", "symmetric"):
        raise ValueError(f'`padding` must be "same" or "symmetric"; got {padding!r}.')


class ImageConv(eqx.Module):
    """A convolution without bias.

    "same" pads as TensorFlow and Haiku do, at stride 2 mostly at the far side; "symmetric" pads half a kernel on both
    sides as PyTorch's networks do. They differ at strides above 1 only.
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
    # A constant of the program: an array made here is traced under `jit`, and what is then no plain maximum has no
    # gradient.
    lowest = np.array(-np.inf, x.dtype)
    return jax.lax.reduce_window(x, lowest, jax.lax.max, (3, 3, 1), (2, 2, 1), pads)


class ChannelDropout(eqx.Module):
    """Sets random channels (the last axis) to zero and divides the others by the probability of staying."""

    rate: Frozen[Float[Array, ""]]
    inference: bool

    def __init__(self, rate: float | Float[Array, ""]):
        """Initialize with the probability of being dropped, an array so that sweeping it compiles once."""
        value = jnp.asarray(rate, dtype=float)
        found = "" if is_traced(value) else f"; got {float(value)}"
        self.rate = Frozen(require(value, ~((value >= 0) & (value < 1)), f"`dropout` must be in [0, 1){found}."))
        self.inference = False

    def __call__(self, x: Float[Array, "height width channels"], *, key: PRNGKeyArray | None) -> Float[Array, "..."]:
        """Return `x` with the mask of `key`; as it is without a key, and in inference mode."""
        if key is None or self.inference:
            return x
        kept = 1 - self.rate.value
        mask = jnp.where(jr.bernoulli(key, kept, x.shape[-1:]), 1 / kept, 0.0).astype(x.dtype)
        return x * mask[None, None]
