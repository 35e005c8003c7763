"""Sampled predictions, with the indices they were made with (Section 3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import require
from .._draws import Draws, check_draws, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples


class Samples(eqx.Module):
    """Outputs of an ENN at sampled indices; entry `m` of every input belongs to index `zs[m]`.

    A joint prediction multiplies the probabilities of its labels *given the index*, so outputs that were made with
    different indices must never be combined: `join_samples` refuses.
    """

    outputs: Float[Array, "samples batch classes"]
    zs: Shaped[Array, "samples ..."]


def _raw(zs: Shaped[Array, "samples ..."]) -> Shaped[Array, "samples ..."]:
    """Return numbers that can be compared: those of a key, or the indices themselves."""
    return jr.key_data(zs) if jnp.issubdtype(zs.dtype, jax.dtypes.prng_key) else zs


@eqx.filter_jit
def sample_at(
    enn: AbstractENN, x: PyTree[Array], zs: Shaped[Array, "samples ..."], chunk_size: int
) -> Float[Array, "samples batch classes"]:
    """Return the outputs at these indices, a chunk of them at a time."""
    embeddings = jax.vmap(enn.embed)(x)
    count = zs.shape[0]
    chunk = min(chunk_size, count)
    numbers = jnp.minimum(jnp.arange(-(-count // chunk) * chunk), count - 1)
    chunks = jax.lax.map(lambda rows: outputs_at(enn, embeddings, zs[rows]), numbers.reshape(-1, chunk))
    return chunks.reshape(-1, *chunks.shape[2:])[:count]


def sample(enn: AbstractENN, x: PyTree, draws: Draws) -> Samples:
    """Return the outputs of `enn` at inputs `x` and sampled indices, the same indices for all inputs.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices, `Draws.given` for known ones; samples made with equal indices can be joined.
    """
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    zs = draws.indices()
    outputs = sample_at(enn, examples.x, zs, draws.chunk_size)
    # NaN and infinities are an error of the network, which must not be passed on.
    failed = ~jnp.all(jnp.isfinite(outputs))
    message = f"`enn` must output finite numbers; got NaN or infinity among the outputs at {draws.num_samples} indices."
    return Samples(require(outputs, failed, message), zs)


def join_samples(*samples: Samples) -> Samples:
    """Return samples of several batches of inputs as one; they must have been made with the same indices."""
    if not samples:
        raise ValueError("`samples` must hold at least one entry; got none.")
    first = samples[0]
    for number, other in enumerate(samples):
        message = f"`samples[{number}]` must be made with the same indices `zs` as `samples[0]`"
        if other.zs.shape != first.zs.shape or other.zs.dtype != first.zs.dtype:
            raise ValueError(
                f"{message}, {first.zs.dtype} of {first.zs.shape}; got {other.zs.dtype} of {other.zs.shape}."
            )
        differ = jnp.any(_raw(other.zs) != _raw(first.zs))
        first = require(first, differ, f"{message}; got different ones.")
    return Samples(jnp.concatenate([entry.outputs for entry in samples], axis=1), first.zs)
