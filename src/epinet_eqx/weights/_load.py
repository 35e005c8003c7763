"""Weights of PyTorch networks in networks of this library."""

import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._files import open_safetensors
from ..networks import BatchNorm, Linear, ResNet, Statistics
from ._naming import Naming, named_layers

# `torch.nn.DataParallel` puts this before every name.
_WRAPPER = "module."
# Where a file does not tell how many batches its running values have seen, it is enough that they forgot their start.
_MANY = 2**30


def _parameters(network: ResNet, naming: Naming) -> dict[str, Any]:
    """Return the parameters by their names in a file."""
    found = {}
    for name, layer in named_layers(network, naming).items():
        found[f"{name}.weight"] = layer.weight
        if isinstance(layer, BatchNorm | Linear):
            found[f"{name}.bias"] = layer.bias
    return found


def _read(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return all tensors of a file, without the prefix of a wrapped network."""
    with open_safetensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a file is not a dictionary)
    if tensors and all(name.startswith(_WRAPPER) for name in tensors):
        tensors = {name.removeprefix(_WRAPPER): tensor for name, tensor in tensors.items()}
    return tensors


def _shape_in_file(leaf: Any) -> tuple[int, ...]:
    """Return the shape that PyTorch gives a parameter: the kernel of a convolution goes last there."""
    return leaf.shape if len(leaf.shape) != 4 else (leaf.shape[3], leaf.shape[2], *leaf.shape[:2])


def _problems(shapes: dict[str, tuple[int, ...]], tensors: dict[str, Array]) -> list[str]:
    """Return a phrase for each tensor that is missing, extra, of another shape, or not finite."""
    phrases = [f"missing {name}" for name in shapes if name not in tensors]
    phrases += [f"extra {name}" for name in sorted(tensors.keys() - shapes.keys())]
    for name in [name for name in shapes if name in tensors]:
        if tensors[name].shape != shapes[name]:
            phrases.append(f"{name} has shape {tensors[name].shape} instead of {shapes[name]}")
        elif not bool(jnp.all(jnp.isfinite(tensors[name]))):
            phrases.append(f"{name} is not finite")
    return phrases


def load_safetensors_weights(
    network: ResNet, state: eqx.nn.State, path: str | os.PathLike[str], *, naming: Naming
) -> tuple[ResNet, eqx.nn.State]:
    """Return the network and its state with the weights and running values of a PyTorch state dict.

    Every tensor of the file must have its place and every parameter its tensor. PyTorch files (`.pth`) are converted
    first, by `python -m epinet_eqx.weights convert SOURCE TARGET`, which reads them as data.

    Args:
        network: a network of the same architecture. No value of it is used, so shapes will do:
            `eqx.filter_eval_shape(resnet_v1, 50, key=key)`.
        state: the state that was made with the network, which stays valid.
        path: the safetensors file.
        naming: what the file calls its tensors: "torchvision" (`layer1.0.bn1`, `fc`), "timm" (the same, or for a
            pre-activation network `stages.0.blocks.0.norm1`, `head.fc`), or "cifar" (`layer1.0.bn1`, `linear`).
    """
    layers = named_layers(network, naming)
    norms = {name: layer for name, layer in layers.items() if isinstance(layer, BatchNorm)}
    parameters = _parameters(network, naming)
    tensors = _read(path)
    counts = {name: tensors.pop(name) for name in list(tensors) if name.endswith(".num_batches_tracked")}
    for name in [f"{name}.weight" for name, layer in layers.items() if isinstance(layer, Linear)]:
        # The last layer of some networks is a 1x1 convolution.
        if name in tensors and tensors[name].shape[2:] == (1, 1):
            tensors[name] = tensors[name][:, :, 0, 0]
    shapes = {name: _shape_in_file(leaf) for name, leaf in parameters.items()}
    shapes |= {
        f"{name}.running_{moment}": norm.bias.shape for name, norm in norms.items() for moment in ("mean", "var")
    }
    problems = _problems(shapes, tensors)
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
        count = jnp.minimum(counts.get(f"{name}.num_batches_tracked", _MANY), _MANY)
        like = state.get(norm.statistics)
        value = Statistics(mean.astype(like.mean.dtype), var.astype(like.var.dtype), count.astype(like.count.dtype))
        state = state.set(norm.statistics, value)
    return network, state
