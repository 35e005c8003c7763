"""Small networks for ImageNet, and the ResNet-50 of 2015, in the form of their public weights."""

from collections.abc import Iterator

import jax
import jax.random as jr
from jaxtyping import PRNGKeyArray

from .._checks import check_positive
from ._folded import Fire, FoldedConv, FoldedNetwork, MaxPool, Residual
from ._layers import Linear, Padding

# Expansion factor, output channels, number of blocks, stride of the first block, kernel size.
_Stages = tuple[tuple[int, int, int, int, int], ...]
_MOBILENET_V2: _Stages = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
_LITE_STRIDES, _LITE_KERNELS = (1, 2, 2, 2, 1, 2, 1), (3, 3, 5, 3, 5, 5, 3)
_LITE_CHANNELS = {
    0: (16, 24, 40, 80, 112, 192, 320),
    1: (16, 24, 40, 80, 112, 192, 320),
    2: (16, 24, 48, 88, 120, 208, 352),
}
_LITE_BLOCKS = {0: (1, 2, 2, 3, 3, 4, 1), 1: (1, 3, 3, 4, 4, 5, 1), 2: (1, 3, 3, 4, 4, 5, 1)}


def _keys(key: PRNGKeyArray) -> Iterator[PRNGKeyArray]:
    """Yield a key for each layer."""
    number = 0
    while True:
        yield jr.fold_in(key, number)
        number += 1


def _inverted(stages: _Stages, num_classes: int, padding: Padding, key: PRNGKeyArray) -> FoldedNetwork:
    """Return a network of inverted residual blocks: expand by 1x1, convolve each channel, project by 1x1."""
    check_positive("num_classes", num_classes)
    keys = _keys(key)
    relu6 = jax.nn.relu6
    blocks: list = [FoldedConv(3, 32, 3, 2, padding=padding, activation=relu6, key=next(keys))]
    width = 32
    for factor, channels, count, first_stride, kernel in stages:
        for number in range(count):
            stride = first_stride if number == 0 else 1
            hidden = factor * width
            convs = [] if factor == 1 else [FoldedConv(width, hidden, 1, activation=relu6, key=next(keys))]
            convs += [
                FoldedConv(
                    hidden, hidden, kernel, stride, depthwise=True, padding=padding, activation=relu6, key=next(keys)
                ),
                FoldedConv(hidden, channels, 1, key=next(keys)),
            ]
            blocks += [Residual(tuple(convs), None, None)] if stride == 1 and width == channels else convs
            width = channels
    blocks.append(FoldedConv(width, 1280, 1, activation=relu6, key=next(keys)))
    return FoldedNetwork(tuple(blocks), Linear(1280, num_classes, key=next(keys)))


def mobilenet_v2(num_classes: int = 1000, *, padding: Padding = "symmetric", key: PRNGKeyArray) -> FoldedNetwork:
    """Return a MobileNetV2 (Sandler et al., 2018) of width 1: 1280 features.

    Args:
        num_classes: number of logits.
        padding: "symmetric" as PyTorch pads, or "same" as TensorFlow does.
        key: random key.
    """
    return _inverted(_MOBILENET_V2, num_classes, padding, key)


def efficientnet_lite(version: int, num_classes: int = 1000, *, key: PRNGKeyArray) -> FoldedNetwork:
    """Return an EfficientNet-Lite, an EfficientNet without squeeze-and-excitation and with ReLU6: 1280 features.

    Args:
        version: 0, 1 or 2, made for images of 224, 240 and 260 pixels; others will do.
        num_classes: number of logits.
        key: random key.
    """
    if version not in _LITE_BLOCKS:
        raise ValueError(f"`version` must be 0, 1 or 2; got {version!r}.")
    table = zip(_LITE_CHANNELS[version], _LITE_BLOCKS[version], _LITE_STRIDES, _LITE_KERNELS, strict=True)
    stages = tuple((1 if number == 0 else 6, *row) for number, row in enumerate(table))
    return _inverted(stages, num_classes, "same", key)


def squeezenet(num_classes: int = 1000, *, key: PRNGKeyArray) -> FoldedNetwork:
    """Return a SqueezeNet 1.1 (Iandola et al., 2016): 512 features.

    The last convolution is applied to the means of its input, and without ReLU, so that logits are linear in features.
    """
    check_positive("num_classes", num_classes)
    keys = _keys(key)
    blocks: list = [FoldedConv(3, 64, 3, 2, activation=jax.nn.relu, key=next(keys)), MaxPool(0)]
    width = 64
    for group in (((16, 128), (16, 128)), ((32, 256), (32, 256)), ((48, 384), (48, 384), (64, 512), (64, 512))):
        for squeezed, channels in group:
            blocks.append(Fire(width, squeezed, channels, key=next(keys)))
            width = channels
        blocks += [MaxPool(0)] if width < 512 else []
    return FoldedNetwork(tuple(blocks), Linear(width, num_classes, key=next(keys)))


def resnet_2015(num_classes: int = 1000, *, key: PRNGKeyArray) -> FoldedNetwork:
    """Return the ResNet-50 of He et al. (2016), version 1: 2048 features.

    The stride of a group is in the first 1x1 convolution of its first block; `resnet_v1` has it in the 3x3 one.
    """
    check_positive("num_classes", num_classes)
    keys = _keys(key)
    relu = jax.nn.relu
    blocks: list = [FoldedConv(3, 64, 7, 2, padding="symmetric", activation=relu, key=next(keys)), MaxPool(1)]
    width = 64
    for group, count in enumerate((3, 4, 6, 3)):
        inner = 64 * 2**group
        for number in range(count):
            stride = 2 if number == 0 and group > 0 else 1
            branch = (
                FoldedConv(width, inner, 1, stride, activation=relu, key=next(keys)),
                FoldedConv(inner, inner, 3, activation=relu, key=next(keys)),
                FoldedConv(inner, 4 * inner, 1, key=next(keys)),
            )
            shortcut = FoldedConv(width, 4 * inner, 1, stride, key=next(keys)) if number == 0 else None
            blocks.append(Residual(branch, shortcut, relu))
            width = 4 * inner
    return FoldedNetwork(tuple(blocks), Linear(width, num_classes, key=next(keys)))
