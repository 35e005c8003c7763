"""The ResNets of ImageNet and CIFAR (Section 6 and Appendix G), and networks as trunks."""

import functools as ft
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Scalar, check_positive, check_sizes
from .._init import Initializer, truncated_normal
from .._keys import named_keys
from ._abstract import AbstractNetwork
from ._layers import ChannelDropout, Linear, Padding, check_padding
from ._resnet import AbstractBlock, PostActivationBlock, PreActivationBlock, ResNet, Stem
from ._small import MLP, ConvNet
from ._stateful import AbstractStatefulNetwork, BatchNorm

# Blocks per group, and whether they are bottlenecks.
_V1 = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
_V2 = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}


def _zeros(key: PRNGKeyArray, shape: tuple[int, ...]) -> tuple[Float[Array, "out in"], Float[Array, " out"]]:
    """The initializer of the last layer in the authors' code: all logits start at zero."""
    return jnp.zeros(shape), jnp.zeros(shape[0])


def _check_depth(depth: int, known: Any) -> None:
    """Raise unless a depth is in the table."""
    if depth not in known:
        raise ValueError(f"`depth` must be one of {', '.join(map(str, known))}; got {depth}.")


def _assemble(
    make_block: Callable[..., AbstractBlock],
    *,
    num_classes: int,
    in_channels: int,
    blocks: tuple[int, ...],
    channels: tuple[int, ...],
    stem_channels: int,
    large: bool,
    pre_activation: bool,
    padding: Padding,
    dropout: Scalar | None,
    norm: Callable[[int], BatchNorm],
    initializer: Initializer,
    key: PRNGKeyArray,
) -> tuple[ResNet, eqx.nn.State]:
    """Return a network and its state; `make_block` takes channels in, channels out, the stride, and options."""
    check_positive("num_classes", num_classes)
    check_positive("in_channels", in_channels)
    check_sizes("blocks", blocks)
    check_padding(padding)
    stem_key, block_key, linear_key = named_keys(key, "stem", "blocks", "linear")
    shared: dict[str, Any] = {"padding": padding, "initializer": initializer}

    def make() -> ResNet:
        stem = Stem(
            in_channels, stem_channels, large=large, norm=None if pre_activation else norm, key=stem_key, **shared
        )
        groups, width = [], stem_channels
        for group, (count, out_channels) in enumerate(zip(blocks, channels, strict=True)):
            made = []
            for number in range(count):
                stride = 2 if group > 0 and number == 0 else 1
                own_key = jr.fold_in(jr.fold_in(block_key, group), number)
                made.append(make_block(width, out_channels, stride, norm=norm, key=own_key, **shared))
                width = out_channels
            groups.append(tuple(made))
        return ResNet(
            stem=stem,
            groups=tuple(groups),
            norm=norm(width) if pre_activation else None,
            linear=Linear(width, num_classes, initializer=_zeros, key=linear_key),
            dropout=None if dropout is None else ChannelDropout(dropout),
        )

    return eqx.nn.make_with_state(make)()


def resnet_v2(
    depth: int,
    num_classes: int = 1000,
    *,
    in_channels: int = 3,
    padding: Padding = "same",
    dropout: Scalar | None = None,
    norm: Callable[[int], BatchNorm] = BatchNorm,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> tuple[ResNet, eqx.nn.State]:
    """Return the paper's ImageNet ResNet and its state: pre-activation bottlenecks, 2048 features.

    Args:
        depth: 50, 101, 152 or 200.
        num_classes: number of logits.
        in_channels: channels of the images.
        padding: "same" as in the authors' code; "symmetric" for weights trained with PyTorch.
        dropout: probability of dropping a channel inside the blocks and on projected shortcuts; None for no dropout.
        norm: makes a normalization from a number of channels.
        initializer: draws the weights of the convolutions; the linear layer starts at zero.
        key: random key.
    """
    _check_depth(depth, _V2)
    return _assemble(
        PreActivationBlock,
        num_classes=num_classes,
        in_channels=in_channels,
        blocks=_V2[depth],
        channels=(256, 512, 1024, 2048),
        stem_channels=64,
        large=True,
        pre_activation=True,
        padding=padding,
        dropout=dropout,
        norm=norm,
        initializer=initializer,
        key=key,
    )


def resnet_v1(
    depth: int,
    num_classes: int = 1000,
    *,
    in_channels: int = 3,
    padding: Padding = "symmetric",
    dropout: Scalar | None = None,
    norm: Callable[[int], BatchNorm] = BatchNorm,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> tuple[ResNet, eqx.nn.State]:
    """Return the ImageNet ResNet "v1.5" of most public weights, and its state: 512 or 2048 features.

    The arguments are those of `resnet_v2`, but `depth` is 18 or 34 (basic blocks), 50, 101 or 152 (bottlenecks), and
    `dropout` is also applied after the stem; the dropout baseline uses 0.05. torchvision and timm pad symmetrically.
    """
    _check_depth(depth, _V1)
    blocks, bottleneck = _V1[depth]
    return _assemble(
        ft.partial(PostActivationBlock, bottleneck=bottleneck),
        num_classes=num_classes,
        in_channels=in_channels,
        blocks=blocks,
        channels=(256, 512, 1024, 2048) if bottleneck else (64, 128, 256, 512),
        stem_channels=64,
        large=True,
        pre_activation=False,
        padding=padding,
        dropout=dropout,
        norm=norm,
        initializer=initializer,
        key=key,
    )


def cifar_resnet(
    depth: int,
    num_classes: int = 10,
    *,
    in_channels: int = 3,
    padding: Padding = "symmetric",
    dropout: Scalar | None = None,
    norm: Callable[[int], BatchNorm] = BatchNorm,
    initializer: Initializer = truncated_normal,
    key: PRNGKeyArray,
) -> tuple[ResNet, eqx.nn.State]:
    """Return a ResNet of small images and its state: basic blocks with padded shortcuts, 64 features.

    The arguments are those of `resnet_v1`, but `depth` is six times the blocks of a group, plus two: 20, 32, 44, 56,
    110, ... The "ResNet-18" of the paper has two blocks per group and is depth 14 here. Public weights of PyTorch need
    symmetric padding, the authors' code has "same".
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 8 or depth % 6 != 2:
        raise ValueError(f"`depth` must be 6 n + 2 for a positive integer n; got {depth}.")
    return _assemble(
        ft.partial(PostActivationBlock, pad_shortcut=True),
        num_classes=num_classes,
        in_channels=in_channels,
        blocks=(depth // 6,) * 3,
        channels=(16, 32, 64),
        stem_channels=16,
        large=False,
        pre_activation=False,
        padding=padding,
        dropout=dropout,
        norm=norm,
        initializer=initializer,
        key=key,
    )


_N = TypeVar("_N", bound=AbstractNetwork | AbstractStatefulNetwork)


def headless(network: _N) -> _N:
    """Return an `MLP`, `ConvNet` or `ResNet` with an empty output: a trunk without unused parameters.

    Its features are unchanged. A comparison of costs counts the parameters that are left.
    """

    def last(network: Any) -> Any:
        return network.layers[-1] if isinstance(network, MLP) else network.linear

    if not isinstance(network, MLP | ConvNet | ResNet):
        raise TypeError(f"`network` must be an `MLP`, a `ConvNet` or a `ResNet`; got {type(network).__name__}.")
    weight, bias = last(network).weight, last(network).bias
    # Axes before these two are those of a stack of networks.
    empty = jnp.zeros((*weight.shape[:-2], 0, weight.shape[-1]), weight.dtype)
    none = jnp.zeros((*bias.shape[:-1], 0), bias.dtype)
    return eqx.tree_at(lambda network: (last(network).weight, last(network).bias), network, (empty, none))
