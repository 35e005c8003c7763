"""Operations of a prediction at the paper's sizes, counted by XLA on shapes: nothing is trained, nothing runs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from epinet_eqx.epinet import Epinet
from epinet_eqx.networks import resnet_v2, with_statistics

from ..configs.images import CountedCosts
from ..record import Row
from .image_lab import epinet_on


def _is_shape(leaf: Any) -> bool:
    """Return whether a leaf is the shape of an array."""
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _flops(function: Any, enn: Epinet, *shapes: Any) -> float:
    """Return the operations of a function of an ENN and of arrays, all given by their shapes."""
    arrays, static = eqx.partition(enn, _is_shape)
    lowered = jax.jit(lambda arrays, *args: function(eqx.combine(arrays, static), *args)).lower(arrays, *shapes)
    return float((lowered.cost_analysis() or {})["flops"])


def _size(tree: Any) -> int:
    """Return the number of parameters."""
    return sum(
        leaf.size for leaf in jax.tree.leaves(tree) if _is_shape(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    )


def epinet_of(config: CountedCosts, *, key: PRNGKeyArray) -> Epinet:
    """Return the epinet of the paper on a ResNet of the paper."""
    base_key, conv_key, key = jr.split(key, 3)
    base = with_statistics(*resnet_v2(config.depth, config.num_classes, key=base_key))
    shape = (3, config.image_size, config.image_size)
    return epinet_on(base, config.epinet, shape, config.num_classes, prior_key=conv_key, key=key)


def run(config: CountedCosts, *, key: PRNGKeyArray) -> list[Row]:
    """Return operations per image of the base network, and of the base with an epinet at several numbers of indices.

    What depends on the index alone is computed once for a batch, so the count per image falls with its size.
    """
    enn = eqx.filter_eval_shape(lambda key: epinet_of(config, key=key), key)
    image = jax.ShapeDtypeStruct((3, config.image_size, config.image_size), jnp.float32)
    base = _flops(lambda enn, x: enn.base(x), enn, image)
    embed = _flops(lambda enn, x: enn.embed(x), enn, image)
    embedding = eqx.filter_eval_shape(lambda enn, x: enn.embed(x), enn, image)
    common = {"depth": config.depth, "base_parameters": _size(enn.base), "parameters": _size(enn), "base_flops": base}
    rows: list[Row] = []
    for batch_size in config.batch_sizes:
        stacked = jax.tree.map(lambda leaf, n=batch_size: jax.ShapeDtypeStruct((n, *leaf.shape), leaf.dtype), embedding)
        for num_samples in config.sample_counts:
            indices = jax.ShapeDtypeStruct((num_samples, config.epinet.index_dim), jnp.float32)
            heads = _flops(
                lambda enn, stacked, zs: jax.vmap(enn.heads, in_axes=(0, None))(stacked, zs), enn, stacked, indices
            )
            flops = embed + heads / batch_size
            rows.append({**common, "batch_size": batch_size, "num_samples": num_samples, "flops": flops})
    return rows
