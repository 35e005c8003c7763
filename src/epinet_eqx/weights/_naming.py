"""What torchvision, timm and PyTorch's CIFAR repositories call the layers of a ResNet."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from ..networks import (
    BatchNorm,
    ImageConv,
    Linear,
    PostActivationBlock,
    PreActivationBlock,
    ProjectionShortcut,
    ResNet,
)

Naming: TypeAlias = Literal["torchvision", "timm", "cifar"]
"""What a file calls its tensors: as torchvision, as timm, or as PyTorch's CIFAR repositories do."""

_Layer: TypeAlias = ImageConv | BatchNorm | Linear


def _post_activation(network: ResNet, linear: str) -> Iterator[tuple[str, _Layer]]:
    """Yield the layers of a ResNet v1: torchvision's names, which timm and CIFAR repositories took over."""
    yield "conv1", network.stem.conv
    if network.stem.norm is not None:
        yield "bn1", network.stem.norm
    for group, blocks in enumerate(network.groups, start=1):
        for number, block in enumerate(blocks):
            assert isinstance(block, PostActivationBlock)
            prefix = f"layer{group}.{number}"
            for place, (conv, norm) in enumerate(zip(block.convs, block.norms, strict=True), start=1):
                yield f"{prefix}.conv{place}", conv
                yield f"{prefix}.bn{place}", norm
            if isinstance(block.shortcut, ProjectionShortcut):
                yield f"{prefix}.downsample.0", block.shortcut.conv
                yield f"{prefix}.downsample.1", block.shortcut.norm
    yield linear, network.linear


def _pre_activation(network: ResNet) -> Iterator[tuple[str, _Layer]]:
    """Yield the layers of a ResNet v2 by timm's names (`resnetv2_50` and its kin with batch normalization)."""
    yield "stem.conv", network.stem.conv
    for group, blocks in enumerate(network.groups):
        for number, block in enumerate(blocks):
            assert isinstance(block, PreActivationBlock)
            prefix = f"stages.{group}.blocks.{number}"
            if block.projection is not None:
                yield f"{prefix}.downsample.conv", block.projection
            for place, (norm, conv) in enumerate(zip(block.norms, block.convs, strict=True), start=1):
                yield f"{prefix}.norm{place}", norm
                yield f"{prefix}.conv{place}", conv
    if network.norm is not None:
        yield "norm", network.norm
    yield "head.fc", network.linear


def named_layers(network: ResNet, naming: Naming) -> dict[str, _Layer]:
    """Return the layers by the names that their weights have in a file."""
    if naming not in ("torchvision", "timm", "cifar"):
        raise ValueError(f'`naming` must be "torchvision", "timm" or "cifar"; got {naming!r}.')
    pre_activation = any(isinstance(block, PreActivationBlock) for blocks in network.groups for block in blocks)
    if pre_activation and naming != "timm":
        raise ValueError(f'`naming` must be "timm" for a pre-activation ResNet; got {naming!r}.')
    if pre_activation:
        return dict(_pre_activation(network))
    return dict(_post_activation(network, "linear" if naming == "cifar" else "fc"))
