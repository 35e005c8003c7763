"""The cost of an ENN: parameters and counted operations (Appendix G.4)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ._checks import check_positive
from ._enn import AbstractENN
from ._tree import count_parameters, trainable_mask


class StageCost(eqx.Module):
    """XLA's own count for one compiled stage, for one input."""

    flops: float
    bytes: float


class Cost(eqx.Module):
    """The cost of an ENN: its parameters, and one input through `embed` and through `heads`."""

    trainable_parameters: int
    frozen_parameters: int
    embed: StageCost
    heads: StageCost
    num_samples: int

    @property
    def parameters(self) -> int:
        """All parameters, frozen ones included."""
        return self.trainable_parameters + self.frozen_parameters

    @property
    def flops(self) -> float:
        """Operations for one input at `num_samples` indices."""
        return self.embed.flops + self.heads.flops


def _is_array_like(leaf: Any) -> bool:
    """Return whether a leaf is an array or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _stage_cost(function: Callable[..., Any], *args: Any) -> StageCost:
    """Compile `function` for these arguments (arrays or their shapes) and return what XLA counts."""
    arrays, static = eqx.partition(args, _is_array_like)
    compiled = jax.jit(lambda arrays: function(*eqx.combine(arrays, static))).lower(arrays).compile()
    analysis = compiled.cost_analysis()
    # Some platforms return one dictionary per device program, and a program without arithmetic has no entry.
    counts = (analysis[0] if isinstance(analysis, list) else analysis) or {}
    return StageCost(flops=float(counts.get("flops", 0.0)), bytes=float(counts.get("bytes accessed", 0.0)))


def cost(enn: AbstractENN, x: PyTree[Array], *, num_samples: int = 1, batch_size: int = 1) -> Cost:
    """Return the cost of `enn` for inputs like the single example `x`.

    Operations are counted by compiling, not by running. Work that depends on the index only is shared by the inputs
    of a batch, so the count per input falls with `batch_size`.
    """
    check_positive("num_samples", num_samples)
    check_positive("batch_size", batch_size)
    parameters = eqx.filter(enn, eqx.is_inexact_array)
    trainable = count_parameters(eqx.filter(enn, trainable_mask(enn)))

    def batched(leaf: Array) -> jax.ShapeDtypeStruct:
        leaf = jnp.asarray(leaf)
        return jax.ShapeDtypeStruct((batch_size, *leaf.shape), leaf.dtype)

    def embed(enn: AbstractENN, xs: PyTree[Array]) -> PyTree[Array]:
        return jax.vmap(enn.embed)(xs)

    def heads(enn: AbstractENN, embeddings: PyTree[Array], zs: Array) -> Array:
        return jax.vmap(enn.heads, in_axes=(0, None))(embeddings, zs)

    def draw(enn: AbstractENN, key: Array) -> Array:
        return enn.index.sample_many(num_samples, key=key)

    xs = jax.tree.map(batched, x)
    embeddings = eqx.filter_eval_shape(embed, enn, xs)
    zs = eqx.filter_eval_shape(draw, enn, eqx.filter_eval_shape(jax.random.key, 0))
    stages = [_stage_cost(embed, enn, xs), _stage_cost(heads, enn, embeddings, zs)]
    per_input = [StageCost(stage.flops / batch_size, stage.bytes / batch_size) for stage in stages]
    return Cost(
        trainable_parameters=trainable,
        frozen_parameters=count_parameters(parameters) - trainable,
        embed=per_input[0],
        heads=per_input[1],
        num_samples=num_samples,
    )
