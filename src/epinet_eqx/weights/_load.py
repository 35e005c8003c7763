"""Weights of torchvision, timm and PyTorch's CIFAR repositories: verified downloads, and ResNets with them."""

import hashlib
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._files import StrPath, open_safetensors
from ..networks import (
    BatchNorm,
    ImageConv,
    Linear,
    PostActivationBlock,
    PreActivationBlock,
    ProjectionShortcut,
    ResNet,
    Statistics,
)

Naming: TypeAlias = Literal["torchvision", "timm", "cifar"]
"""The convention for names of tensors: that of torchvision, timm, or PyTorch's CIFAR repositories."""

_Layer: TypeAlias = ImageConv | BatchNorm | Linear

# `torch.nn.DataParallel` puts this before every name.
_WRAPPER = "module."
_COUNT = ".num_batches_tracked"
# Stands for the number of batches behind the running values where a file does not state it.
_MANY = 2**30


def _post_activation(network: ResNet, linear: str) -> Iterator[tuple[str, _Layer]]:
    """Yield the layers of a ResNet v1 by torchvision's names, which timm and CIFAR repositories share."""
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
    """Return the layers by the names of their weights in the file."""
    if naming not in ("torchvision", "timm", "cifar"):
        raise ValueError(f'`naming` must be "torchvision", "timm" or "cifar"; got {naming!r}.')
    pre_activation = any(isinstance(block, PreActivationBlock) for blocks in network.groups for block in blocks)
    if pre_activation and naming != "timm":
        raise ValueError(f'`naming` must be "timm" for a pre-activation ResNet; got {naming!r}.')
    if pre_activation:
        return dict(_pre_activation(network))
    return dict(_post_activation(network, "linear" if naming == "cifar" else "fc"))


def _parameters(network: ResNet, naming: Naming) -> dict[str, Any]:
    """Return the parameters by name in the file."""
    found = {}
    for name, layer in named_layers(network, naming).items():
        found[f"{name}.weight"] = layer.weight
        if isinstance(layer, BatchNorm | Linear):
            found[f"{name}.bias"] = layer.bias
    return found


def _read(path: StrPath) -> dict[str, Array]:
    """Return all tensors of a file, without the prefix of a wrapped network."""
    with open_safetensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a file is not a dictionary)
    if tensors and all(name.startswith(_WRAPPER) for name in tensors):
        tensors = {name.removeprefix(_WRAPPER): tensor for name, tensor in tensors.items()}
    return tensors


def _shape_in_file(leaf: Any) -> tuple[int, ...]:
    """Return the shape of a parameter in PyTorch, where the kernel axes of a convolution come last."""
    return leaf.shape if len(leaf.shape) != 4 else (leaf.shape[3], leaf.shape[2], *leaf.shape[:2])


def _problems(shapes: dict[str, tuple[int, ...]], tensors: dict[str, Array]) -> list[str]:
    """Return a phrase for each tensor that is missing, extra, of another shape, or not finite."""
    phrases = [f"missing {name}" for name in shapes if name not in tensors]
    phrases += [f"extra {name}" for name in sorted(tensors.keys() - shapes.keys())]
    for name in [name for name in shapes if name in tensors]:
        if tensors[name].shape != shapes[name]:
            phrases.append(f"{name} has shape {tensors[name].shape} instead of {shapes[name]}")
        elif not jnp.issubdtype(tensors[name].dtype, jnp.floating):
            phrases.append(f"{name} is {tensors[name].dtype}, not floating-point numbers")
        elif not bool(jnp.all(jnp.isfinite(tensors[name]))):
            phrases.append(f"{name} is not finite")
        elif name.endswith(".running_var") and bool(jnp.any(tensors[name] < 0)):
            phrases.append(f"{name} is negative")
    return phrases


def load_safetensors_weights(
    network: ResNet, state: eqx.nn.State, path: StrPath, *, naming: Naming
) -> tuple[ResNet, eqx.nn.State]:
    """Return the network and its state with the weights and running values of a PyTorch state dict.

    Every tensor of the file must belong to a parameter, and every parameter must have a tensor. Convert PyTorch files
    (`.pth`) first: `python -m epinet_eqx.weights convert SOURCE TARGET` reads them as data.

    Args:
        network: a network of the same architecture. Its values are not used, so shapes are enough:
            `eqx.filter_eval_shape(resnet_v1, 50, key=key)`.
        state: the state made with the network; it stays valid.
        path: the safetensors file.
        naming: the convention for names of tensors: "torchvision" (`layer1.0.bn1`, `fc`), "timm" (the same, or for a
            pre-activation network `stages.0.blocks.0.norm1`, `head.fc`), or "cifar" (`layer1.0.bn1`, `linear`).
    """
    layers = named_layers(network, naming)
    norms = {name: layer for name, layer in layers.items() if isinstance(layer, BatchNorm)}
    parameters = _parameters(network, naming)
    tensors = _read(path)
    counts = {name: tensors.pop(name) for name in list(tensors) if name.endswith(_COUNT)}
    for name in [f"{name}.weight" for name, layer in layers.items() if isinstance(layer, Linear)]:
        # The last layer of some networks is a 1x1 convolution.
        if name in tensors and tensors[name].shape[2:] == (1, 1):
            tensors[name] = tensors[name][:, :, 0, 0]
    shapes = {name: _shape_in_file(leaf) for name, leaf in parameters.items()}
    shapes |= {
        f"{name}.running_{moment}": norm.bias.shape for name, norm in norms.items() for moment in ("mean", "var")
    }
    problems = _problems(shapes, tensors)
    for name, count in counts.items():
        if name.removesuffix(_COUNT) not in norms:
            problems.append(f"extra {name}")
        elif count.shape != () or not jnp.issubdtype(count.dtype, jnp.integer) or count < 0:
            problems.append(f"{name} is no count")
    if problems:
        raise ValueError(
            f"`path` must hold the weights of this network by {naming} names; {os.fspath(path)!r} differs: "
            f"{', '.join(problems[:8])}{f' and {len(problems) - 8} more' if len(problems) > 8 else ''}."
        )
    values = [tensors[name].astype(leaf.dtype) for name, leaf in parameters.items()]
    network = eqx.tree_at(
        lambda network: list(_parameters(network, naming).values()),
        network,
        [jnp.transpose(value, (2, 3, 1, 0)) if value.ndim == 4 else value for value in values],
    )
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
    for name, norm in norms.items():
        mean, var = tensors[f"{name}.running_mean"], tensors[f"{name}.running_var"]
        count = jnp.minimum(counts.get(f"{name}{_COUNT}", _MANY), _MANY)
        like = state.get(norm.statistics)
        value = Statistics(mean.astype(like.mean.dtype), var.astype(like.var.dtype), count.astype(like.count.dtype))
        state = state.set(norm.statistics, value)
    return network, state


def download(repo: str, filename: str, *, revision: str, sha256: str, folder: StrPath | None = None) -> pathlib.Path:
    """Return a safetensors file of the Hugging Face hub: downloaded if it is not cached, and verified every time.

    Args:
        repo: name of the repository, such as "timm/resnet50.tv_in1k".
        filename: path of the file in it, which must end in ".safetensors": nothing else is loaded.
        revision: commit, tag or branch.
        sha256: the SHA-256 checksum of the file, in hexadecimal.
        folder: the folder of downloads; by default the hub's cache.
    """
    if not filename.endswith(".safetensors"):
        raise ValueError(f'`filename` must end in ".safetensors"; got {filename!r}.')
    if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"`sha256` must have 64 hexadecimal digits; got {sha256!r}.")
    try:
        from huggingface_hub import hf_hub_download  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("`download` needs huggingface_hub: install `epinet_eqx[hub]`.") from None
    path = pathlib.Path(
        hf_hub_download(repo, filename, revision=revision, cache_dir=None if folder is None else os.fspath(folder))
    )
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise ValueError(f"`sha256` must be that of {filename!r} of {repo!r} at {revision!r}, {found}; got {sha256}.")
    return path
