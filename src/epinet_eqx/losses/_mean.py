"""Averages of a loss over a batch and over indices (Algorithm 1, line 4)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, Shaped

from .._enn import AbstractENN
from .._tree import trainable_mask
from ._batch import Batch
from ._loss import AbstractLoss


def mean_loss(
    loss: AbstractLoss,
    enn: AbstractENN,
    zs: Shaped[Array, "samples ..."],
    batch: Batch,
    *,
    params: PyTree | None = None,
) -> Float[Array, ""]:
    """Return the mean of `loss(enn, z, x, y, i)` over all indices `zs` and all examples of the batch.

    The same value as a double loop over single losses, through `embed` and `heads`: the base network runs once per
    input and the penalty once per index, or once at all if it does not depend on the index.

    Args:
        loss: the loss.
        enn: the ENN.
        zs: index samples.
        batch: examples with their numbers.
        params: the part of `enn` that is penalized; by default its trainable part.
    """
    if params is None:
        params = eqx.filter(enn, trainable_mask(enn))

    def example(
        x: PyTree[Array], y: Shaped[Array, "..."], i: Int[Array, ""]
    ) -> tuple[Float[Array, " samples"], Float[Array, " samples"]]:
        outputs = enn.heads(enn.embed(x), zs)
        scores = jax.vmap(lambda z: loss.score(enn.index, z, i, outputs.shape[-1]))(zs)
        data = jax.vmap(lambda output, score: loss.data_loss(output, y, score))(outputs, scores)
        return jax.vmap(lambda z: loss.weight(enn.index, z, i))(zs), data

    # Paper: a sum (Algorithm 1, line 4); here: the mean, because the learning rate then does not depend on sizes.
    weights, data = jax.vmap(example)(batch.x, batch.y, batch.i)
    penalties = jax.vmap(lambda z: loss.penalty(enn, params, z))(zs)
    return jnp.mean(weights * (data + penalties[None, :]))


def mean_data_loss(
    loss: AbstractLoss,
    enn: AbstractENN,
    zs: Shaped[Array, "samples ..."],
    batch: Batch,
    *,
    chunk_size: int = 256,
) -> Float[Array, ""]:
    """Return the mean of the data loss alone, without penalty, bootstrap or perturbed targets: for held-out data.

    The batch goes through in chunks of `chunk_size` examples, so memory does not grow with it.
    """

    def example(xy: tuple[PyTree[Array], Shaped[Array, "..."]]) -> Float[Array, ""]:
        x, y = xy
        outputs = enn.heads(enn.embed(x), zs)
        return jnp.mean(jax.vmap(lambda output: loss.data_loss(output, y, jnp.zeros_like(output)))(outputs))

    return jnp.mean(jax.lax.map(example, (batch.x, batch.y), batch_size=chunk_size))
