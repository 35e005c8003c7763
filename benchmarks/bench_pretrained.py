"""Images per second of ImageNet networks at 224 pixels, as banks of stored outputs are made.

Where PyTorch is installed, the same network in its faster layout is the measure; elsewhere it is a large product of
matrices, the machine's limit. Weights do not change how long a network takes, so random ones do.
"""

import functools as ft
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from epinet_eqx.networks import FoldedConv, FoldedNetwork, efficientnet_lite, mobilenet_v2, resnet_2015
from epinet_eqx.networks._folded import Residual

from ._measure import Ratio, flops, matmul_rate, minimum_times

BATCH = 8
NETWORKS: dict[str, Callable[..., FoldedNetwork]] = {
    "ResNet-50": resnet_2015,
    "EfficientNet-Lite0": ft.partial(efficientnet_lite, 0),
    "MobileNetV2": mobilenet_v2,
}


def _torch_conv(torch: Any, conv: FoldedConv) -> Any:
    """Return a convolution with its activation in PyTorch; all padding is on both sides, at the same cost."""
    kernel, _, _, out = conv.weight.shape
    size = out if conv.depthwise else conv.weight.shape[2]
    groups = out if conv.depthwise else 1
    layer = torch.nn.Conv2d(size, out, kernel, conv.stride, kernel // 2, groups=groups)
    layer.weight.data = torch.from_numpy(np.array(jnp.transpose(conv.weight, (3, 2, 0, 1))))
    layer.bias.data = torch.from_numpy(np.array(conv.bias))
    activations = {None: torch.nn.Identity, jax.nn.relu: torch.nn.ReLU, jax.nn.relu6: torch.nn.ReLU6}
    return torch.nn.Sequential(layer, activations[conv.activation]())


def torch_network(network: FoldedNetwork) -> Any:
    """Return the same network in PyTorch, up to the mean over pixels."""
    import torch  # pyright: ignore[reportMissingImports]

    nn = torch.nn

    class Sum(nn.Module):
        def __init__(self, block: Residual):
            super().__init__()
            self.branch = nn.Sequential(*(_torch_conv(torch, conv) for conv in block.branch))
            self.shortcut = nn.Identity() if block.shortcut is None else _torch_conv(torch, block.shortcut)
            self.activation = nn.Identity() if block.activation is None else nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.activation(self.branch(x) + self.shortcut(x))

    def module(block: Any) -> Any:
        if isinstance(block, FoldedConv):
            return _torch_conv(torch, block)
        return Sum(block) if isinstance(block, Residual) else nn.MaxPool2d(3, 2, block.padding)

    layers = nn.Sequential(*map(module, network.blocks), nn.AdaptiveAvgPool2d(1))
    return layers.eval().to(memory_format=torch.channels_last)


def _torch_run(network: FoldedNetwork, x: jax.Array) -> Callable[[], Any]:
    """Return a function that runs PyTorch's network on these images."""
    import torch  # pyright: ignore[reportMissingImports]

    layers = torch_network(network)
    images = torch.from_numpy(np.array(x)).contiguous(memory_format=torch.channels_last)

    def run() -> None:
        with torch.inference_mode():
            layers(images)

    return run


def main() -> list[Ratio]:
    """Return for each network the images per second over PyTorch's, or the share of the machine's limit."""
    limit = matmul_rate(2048)
    ratios = []
    for name, make in NETWORKS.items():
        network = make(key=jr.key(0))
        arrays, static = eqx.partition(network, eqx.is_array)
        features = jax.jit(lambda arrays, x, static=static: jax.vmap(eqx.combine(arrays, static).with_features)(x)[1])
        x = jr.normal(jr.key(1), (BATCH, 3, 224, 224))
        ours = ft.partial(features, arrays, x)
        share = flops(features.lower(arrays, x).compile()) / limit
        if importlib.util.find_spec("torch") is None:
            (seconds,) = minimum_times([ours], rounds=9)
            words = f"{BATCH / seconds:.0f} images/s"
            ratios.append(Ratio(f"pretrained: {name}, share of the matmul limit ({words})", share / seconds, 0.1))
            continue
        theirs = _torch_run(network, x)
        seconds, torch_seconds = minimum_times([ours, theirs], rounds=9)
        cpu, torch_cpu = minimum_times([ours, theirs], rounds=9, clock=time.process_time)
        words = f"{BATCH / seconds:.0f} images/s, {share / seconds:.2f} of the matmul limit"
        words += f", by CPU time {torch_cpu / cpu:.2f}"
        ratios.append(Ratio(f"pretrained: {name}, images/s over PyTorch's ({words})", torch_seconds / seconds, 0.8))
    return ratios
