"""Features of CIFAR-sized images through a frozen ResNet-20, in compiled batches.

Where PyTorch is installed, its time is the measure; elsewhere it is the time that the counted operations would take at
the rate of the network's own 3x3 convolutions alone.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from epinet_eqx.networks import cifar_resnet, with_statistics

from ._measure import Ratio, flops, minimum_times

# At 50 images the activations of a layer stay in the cache; batches of 500 are a fifth slower.
BATCH = 50
BATCHES = 4
CHANNELS_AND_SIDES = ((16, 32), (32, 16), (64, 8))


def convolution_rate(rounds: int) -> float:
    """Return the floating-point operations per second of 3x3 convolutions at the three sizes of the network."""
    operations, functions = 0, []
    convolve = jax.jit(
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )
    for channels, side in CHANNELS_AND_SIDES:
        x, w = jnp.ones((BATCH, side, side, channels)), jnp.ones((3, 3, channels, channels))
        operations += 2 * BATCH * side**2 * 9 * channels**2
        functions.append(lambda x=x, w=w: convolve(x, w))
    return operations / sum(minimum_times(functions, rounds=rounds))


def torch_network() -> Callable[[Any], Any]:
    """Return a function of a number of batches that runs PyTorch's ResNet-20 on as many, in its faster layout."""
    import torch  # pyright: ignore[reportMissingImports]

    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width: int, channels: int, stride: int):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(width, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
            self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
            self.stride, self.pad = stride, (channels - width) // 2

        def forward(self, x: Any) -> Any:
            hidden = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
            if self.stride == 2:
                x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
            return (hidden + x).relu()

    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for width, channels, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        layers += [Block(width, channels, stride), Block(channels, channels, 1), Block(channels, channels, 1)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)).eval().to(memory_format=torch.channels_last)
    x = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)

    def run(batches: int) -> None:
        with torch.inference_mode():
            for _ in range(batches):
                network(x)

    return run


def main() -> list[Ratio]:
    """Return the time of the features, over PyTorch's or over that of the counted operations."""
    network = with_statistics(*cifar_resnet(20, key=jr.key(0)))
    arrays, static = eqx.partition(network, eqx.is_array)
    features = jax.jit(lambda arrays, x: jax.vmap(eqx.combine(arrays, static).with_features)(x)[1])
    x = jr.normal(jr.key(1), (BATCH, 3, 32, 32))

    def ours() -> Any:
        return [features(arrays, x) for _ in range(BATCHES)]

    if importlib.util.find_spec("torch") is not None:
        theirs = torch_network()
        time, torch_time = minimum_times([ours, lambda: theirs(BATCHES)], rounds=9)
        return [
            Ratio(
                f"features: time over PyTorch's ({BATCH * BATCHES / time:.0f} images/s)", time / torch_time, 2.0, True
            )
        ]
    (time,) = minimum_times([ours], rounds=9)
    operations = BATCHES * flops(features.lower(arrays, x).compile())
    name = f"features: time over the counted operations' ({BATCH * BATCHES / time:.0f} images/s)"
    return [Ratio(name, time * convolution_rate(9) / operations, 2.0, True)]
