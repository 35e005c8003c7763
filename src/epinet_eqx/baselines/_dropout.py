"""Dropout of channels in a convolutional network: the paper's baseline "dropout" (Section 6)."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..bayes import Dropout, MCDropout
from ..networks import ConvNet


def channel_dropout(network: ConvNet, rate: float | Float[Array, ""] = 0.05) -> MCDropout:
    """Return the ENN of a convolutional network with dropout of whole channels after each activation.

    One index is one mask per layer, for all inputs of a joint prediction. For a ResNet, give its constructor a
    `dropout` and use `MCDropout(with_statistics(network, state).masked)`; for an MLP there is `dropout_mlp`.

    Args:
        network: the network, initialized or trained; it must have a convolution.
        rate: the probability of being dropped, an array so that sweeping it compiles once.
    """
    if not isinstance(network, ConvNet) or not network.convs:
        found = "one without" if isinstance(network, ConvNet) else type(network).__name__
        raise ValueError(f"`network` must be a `ConvNet` with convolutions; got {found}.")
    layers: list[Callable[..., Any]] = []
    for conv in network.convs:
        layers += [conv, network.activation, Dropout(rate, channelwise=True)]
    return MCDropout.of([*layers, jnp.ravel, network.linear])
