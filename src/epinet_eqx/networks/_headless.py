"""Networks without their last layer, as trunks (Section 6)."""

from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp

from ._abstract import AbstractNetwork
from ._conv import ConvNet
from ._mlp import MLP
from ._resnet import ResNet
from ._stateful import AbstractStatefulNetwork

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
