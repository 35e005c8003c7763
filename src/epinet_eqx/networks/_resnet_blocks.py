"""Residual blocks: after and before activation, basic and bottleneck."""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._init import Initializer, truncated_normal
from ._batch_norm import BatchNorm
from ._image_layers import ImageConv, Padding

# Drops channels of an image; the number says which of the block's places it is called at.
Drop: TypeAlias = Callable[[Any, int], Any]


class AbstractBlock(eqx.Module):
    """A residual block, on one image with its channels last."""

    @abc.abstractmethod
    def __call__(
        self, x: Float[Array, "height width in"], state: eqx.nn.State, drop: Drop
    ) -> tuple[Float[Array, "height_out width_out out"], eqx.nn.State]:
        """Return the block's output and the new state."""


class PadShortcut(eqx.Module):
    """Option A of He et al. (2016): every `stride`-th pixel, with channels of zeros on both sides."""

    stride: int = eqx.field(static=True)
    num_zeros: int = eqx.field(static=True)

    def __call__(
        self, x: Float[Array, "height width in"], state: eqx.nn.State
    ) -> tuple[Float[Array, "height_out width_out out"], eqx.nn.State]:
        """Return the shortcut and the state as it was."""
        before = self.num_zeros // 2
        x = x[:: self.stride, :: self.stride]
        return jnp.pad(x, ((0, 0), (0, 0), (before, self.num_zeros - before))), state


class ProjectionShortcut(eqx.Module):
    """Option B of He et al. (2016): a normalized 1x1 convolution."""

    conv: ImageConv
    norm: BatchNorm

    def __call__(
        self, x: Float[Array, "height width in"], state: eqx.nn.State
    ) -> tuple[Float[Array, "height_out width_out out"], eqx.nn.State]:
        """Return the shortcut and the new state."""
        return self.norm(self.conv(x), state)


def _branch(
    in_channels: int,
    out_channels: int,
    stride: int,
    bottleneck: bool,
    padding: Padding,
    initializer: Initializer,
    key: PRNGKeyArray,
) -> tuple[ImageConv, ...]:
    """Return the convolutions of a block: 3x3, 3x3, or 1x1, 3x3, 1x1 with a quarter of the channels between.

    The stride is in the first 3x3 convolution, which makes an ImageNet bottleneck "v1.5".
    """
    if bottleneck:
        width, strides = out_channels // 4, (1, stride, 1)
        sizes, kernels = (in_channels, width, width, out_channels), (1, 3, 1)
    else:
        sizes, kernels, strides = (in_channels, out_channels, out_channels), (3, 3), (stride, 1)
    return tuple(
        ImageConv(*shape, padding=padding, initializer=initializer, key=jr.fold_in(key, number))
        for number, shape in enumerate(zip(sizes[:-1], sizes[1:], kernels, strides, strict=True))
    )


class PostActivationBlock(AbstractBlock):
    """A block of ResNet v1: normalized convolutions with ReLU between them, plus the shortcut, then ReLU.

    Dropout is after the inner ReLUs and on a projected shortcut.
    """

    convs: tuple[ImageConv, ...]
    norms: tuple[BatchNorm, ...]
    shortcut: PadShortcut | ProjectionShortcut | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        *,
        bottleneck: bool = False,
        pad_shortcut: bool = False,
        padding: Padding = "same",
        norm: Callable[[int], BatchNorm] = BatchNorm,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize the block.

        Args:
            in_channels: channels of the input.
            out_channels: channels of the output.
            stride: how many times smaller the output is.
            bottleneck: whether there are three convolutions, or two.
            pad_shortcut: whether a shortcut between different shapes is a `PadShortcut`, or a projection.
            padding: how convolutions are padded.
            norm: makes a normalization from a number of channels.
            initializer: draws the weights of the convolutions.
            key: random key.
        """
        branch_key, shortcut_key = jr.split(key)
        self.convs = _branch(in_channels, out_channels, stride, bottleneck, padding, initializer, branch_key)
        self.norms = tuple(norm(conv.weight.shape[3]) for conv in self.convs)
        if stride == 1 and in_channels == out_channels:
            self.shortcut = None
        elif pad_shortcut:
            self.shortcut = PadShortcut(stride, out_channels - in_channels)
        else:
            conv = ImageConv(
                in_channels, out_channels, 1, stride, padding=padding, initializer=initializer, key=shortcut_key
            )
            self.shortcut = ProjectionShortcut(conv, norm(out_channels))

    def __call__(
        self, x: Float[Array, "height width in"], state: eqx.nn.State, drop: Drop
    ) -> tuple[Float[Array, "height_out width_out out"], eqx.nn.State]:
        """Return the block's output and the new state."""
        hidden = x
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            hidden = hidden if place == 0 else drop(jax.nn.relu(hidden), place)
            hidden, state = norm(conv(hidden), state)
        if self.shortcut is not None:
            x, state = self.shortcut(x, state)
            x = drop(x, 0) if isinstance(self.shortcut, ProjectionShortcut) else x
        return jax.nn.relu(hidden + x), state


class PreActivationBlock(AbstractBlock):
    """A block of ResNet v2: normalization and ReLU before each convolution; the first are shared with a projection.

    Dropout is after the inner ReLUs and on a projected shortcut.
    """

    norms: tuple[BatchNorm, ...]
    convs: tuple[ImageConv, ...]
    projection: ImageConv | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        *,
        bottleneck: bool = True,
        padding: Padding = "same",
        norm: Callable[[int], BatchNorm] = BatchNorm,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize the block; the arguments are those of `PostActivationBlock`."""
        branch_key, shortcut_key = jr.split(key)
        self.convs = _branch(in_channels, out_channels, stride, bottleneck, padding, initializer, branch_key)
        self.norms = tuple(norm(conv.weight.shape[2]) for conv in self.convs)
        self.projection = None
        if stride != 1 or in_channels != out_channels:
            self.projection = ImageConv(
                in_channels, out_channels, 1, stride, padding=padding, initializer=initializer, key=shortcut_key
            )

    def __call__(
        self, x: Float[Array, "height width in"], state: eqx.nn.State, drop: Drop
    ) -> tuple[Float[Array, "height_out width_out out"], eqx.nn.State]:
        """Return the block's output and the new state."""
        hidden = x
        for place, (norm, conv) in enumerate(zip(self.norms, self.convs, strict=True)):
            hidden, state = norm(hidden, state)
            hidden = jax.nn.relu(hidden)
            if place == 0:
                x = x if self.projection is None else drop(self.projection(hidden), 0)
            else:
                hidden = drop(hidden, place)
            hidden = conv(hidden)
        return hidden + x, state
