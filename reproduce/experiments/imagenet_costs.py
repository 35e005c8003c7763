"""Parameters and counted operations of the networks of the ImageNet bank, and of ENNs on their stored outputs."""

import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from epinet_eqx import AbstractENN, cost
from epinet_eqx.networks import FoldedNetwork, efficientnet_lite, mobilenet_v2, resnet_2015, squeezenet

# What depends on the index alone is shared by the images of a batch.
_BATCH = 100
# Operations are linear in the number of indices, so two counts will do.
_COUNTS = (1, 11)

_MAKE: Mapping[str, Callable[..., FoldedNetwork]] = {
    "resnet50": resnet_2015,
    "efficientnet_lite0": ft.partial(efficientnet_lite, 0),
    "efficientnet_lite1": ft.partial(efficientnet_lite, 1),
    "efficientnet_lite2": ft.partial(efficientnet_lite, 2),
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v2_keras": ft.partial(mobilenet_v2, padding="same"),
    "squeezenet1_1": squeezenet,
}


class Counted(NamedTuple):
    """Parameters, operations of one image, and operations that each index adds."""

    parameters: int
    flops: float
    flops_per_index: float = 0.0

    def columns(self, num_samples: int) -> dict[str, Any]:
        """Return the columns of a row."""
        return {"parameters": self.parameters, "flops": self.flops + num_samples * self.flops_per_index}


@ft.cache
def network_cost(name: str) -> Counted:
    """Return the cost of a network, counted by XLA on shapes."""
    seed = jax.ShapeDtypeStruct((), jnp.uint32)
    network = eqx.filter_eval_shape(lambda seed: _MAKE[name](key=jr.key(seed)), seed)
    arrays, static = eqx.partition(network, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    image = jax.ShapeDtypeStruct((3, 224, 224), jnp.float32)
    lowered = jax.jit(lambda arrays, x: eqx.combine(arrays, static)(x)).lower(arrays, image)
    flops = float((lowered.cost_analysis() or {})["flops"])
    return Counted(sum(leaf.size for leaf in jax.tree.leaves(arrays)), flops)


def ensemble_cost(names: tuple[str, ...]) -> Counted:
    """Return the cost of networks that all predict."""
    found = [network_cost(name) for name in names]
    return Counted(sum(own.parameters for own in found), sum(own.flops for own in found))


def head_cost(name: str, enn: AbstractENN, example: Any) -> Counted:
    """Return the cost of a network and of an ENN that reads its stored outputs."""
    base = network_cost(name)
    few, many = (cost(enn, example, num_samples=count, batch_size=_BATCH) for count in _COUNTS)
    slope = (many.flops - few.flops) / (_COUNTS[1] - _COUNTS[0])
    return Counted(base.parameters + few.parameters, base.flops + few.flops - _COUNTS[0] * slope, slope)
