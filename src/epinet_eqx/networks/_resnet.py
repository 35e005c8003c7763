"""ResNets: blocks, stems and networks (Section 6 and Appendix G)."""

import abc
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._init import Initializer, truncated_normal
from ._layers import ChannelDropout, ImageConv, Linear, Padding, max_pool
from ._stateful import AbstractStatefulNetwork, BatchNorm

# Drops channels of an image; the number is the position in the block.
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
        """Return the shortcut and the unchanged state."""
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
            stride: stride of the block; the output is smaller by this factor.
            bottleneck: whether to use three convolutions instead of two.
            pad_shortcut: whether a shortcut between different shapes is a `PadShortcut` instead of a projection.
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


class Stem(eqx.Module):
    """The first convolution, with normalization and ReLU, with 3x3 max-pooling at stride 2, with both or neither."""

    conv: ImageConv
    norm: BatchNorm | None
    pool: bool = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        large: bool,
        norm: Callable[[int], BatchNorm] | None,
        padding: Padding,
        initializer: Initializer,
        key: PRNGKeyArray,
    ):
        """Initialize the stem.

        Args:
            in_channels: channels of the images.
            out_channels: channels of the output.
            large: whether to convolve by 7x7 at stride 2 and to pool, for large images, or by 3x3.
            norm: makes a normalization from a number of channels; None for neither normalization nor ReLU.
            padding: how to pad.
            initializer: draws the weights.
            key: random key.
        """
        kernel, stride = (7, 2) if large else (3, 1)
        self.conv = ImageConv(
            in_channels, out_channels, kernel, stride, padding=padding, initializer=initializer, key=key
        )
        self.norm = None if norm is None else norm(out_channels)
        self.pool = large


class ResNet(AbstractStatefulNetwork):
    """A stem, groups of residual blocks, a final normalization with ReLU if needed, global pooling and a linear layer.

    Images come with their channels first and are processed with their channels last. Build the known ones with
    `resnet_v1`, `resnet_v2` and `cifar_resnet`.
    """

    stem: Stem
    groups: tuple[tuple[AbstractBlock, ...], ...]
    norm: BatchNorm | None
    linear: Linear
    dropout: ChannelDropout | None

    @property
    def feature_dim(self) -> int:
        """The number of channels of the last group."""
        return self.linear.weight.shape[-1]

    def _drop(
        self, x: Float[Array, "height width channels"], place: int, key: PRNGKeyArray | None, block: int
    ) -> Float[Array, "height width channels"]:
        """Return `x` after the dropout at a place of a block, each with its own stream of masks."""
        if self.dropout is None or key is None:
            return x
        return self.dropout(x, key=jr.fold_in(jr.fold_in(key, block), place))

    def _run(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, key: PRNGKeyArray | None
    ) -> tuple[dict[str, Float[Array, "..."]], eqx.nn.State]:
        """Return the outputs of all stages for one image, with channels last, and the new state."""
        weight = self.stem.conv.weight
        if x.ndim != 3 or x.shape[0] != weight.shape[2]:
            raise ValueError(f"`x` must have shape ({weight.shape[2]}, height, width); got {x.shape}.")
        found = {}
        x = self.stem.conv(jnp.transpose(x, (1, 2, 0)).astype(weight.dtype))
        if self.stem.norm is not None:
            x, state = self.stem.norm(x, state)
            x = self._drop(jax.nn.relu(x), 0, key, 0)
        found["stem"] = x = max_pool(x, self.stem.conv.padding) if self.stem.pool else x
        number = 0
        for group, blocks in enumerate(self.groups, start=1):
            for block in blocks:
                number += 1
                x, state = block(x, state, lambda x, place, number=number: self._drop(x, place, key, number))
            found[f"group{group}"] = x
        if self.norm is not None:
            x, state = self.norm(x, state)
            x = jax.nn.relu(x)
        found["features"] = jnp.mean(x, axis=(0, 1))
        found["output"] = self.linear(found["features"])
        return found, state

    def with_features(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"], eqx.nn.State]:
        """Return the output for one image, the pooled features, and the new state."""
        found, state = self._run(x, state, key)
        return found["output"], found["features"], state

    def stages(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> dict[str, Float[Array, "..."]]:
        """Return `stem`, `group1`, `group2`, ... with their channels first, and the vectors `features` and `output`."""
        found, _ = self._run(x, state, key)
        return {name: jnp.moveaxis(value, -1, 0) for name, value in found.items()}

    def with_masks(self) -> "ResNet":
        """Return the network with dropout enabled."""
        if self.dropout is None:
            raise ValueError("`dropout` must have been given to the network, for masks; got None.")
        return eqx.tree_at(lambda network: network.dropout.inference, self, False)
