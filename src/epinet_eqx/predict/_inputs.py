"""What every prediction checks before anything compiles."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, PRNGKeyArray, PyTree, Shaped

from .._checks import check_finite, check_positive, num_examples, require
from .._enn import AbstractENN, num_outputs
from ..indices import AbstractIndex
from ._likelihood import AbstractLikelihood
from ._stream import Draws

# So many output numbers per chunk stay within a few megabytes; more would not be faster.
_CHUNK_OUTPUTS = 2**21
_MAX_BATCH = 1024


class Examples(NamedTuple):
    """Checked inputs, how many they are, and the number of outputs of the network there."""

    x: PyTree[Array]
    length: int
    num_outputs: int


@eqx.filter_jit
def _like_output(enn: AbstractENN, x: PyTree[Array]) -> Array:
    """Return zeros of the shape of an output. Only its shape is asked for, which compiled functions remember."""
    return jnp.zeros(num_outputs(enn, x))


def check_examples(enn: AbstractENN, name: str, x: PyTree[ArrayLike]) -> Examples:
    """Return inputs with a leading batch axis as finite arrays that `enn` accepts."""
    length = num_examples(name, x)
    x = jax.tree.map(jnp.asarray, x)
    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)
    outputs = eqx.filter_eval_shape(_like_output, enn, first).shape[0]
    return Examples(check_finite(name, x), length, outputs)


def check_targets(
    likelihood: AbstractLikelihood, y: Shaped[ArrayLike, "..."], examples: Examples
) -> Shaped[Array, "batch ..."]:
    """Return targets, one for each example, that `likelihood` accepts."""
    y = jnp.asarray(y)
    if y.ndim == 0 or y.shape[0] != examples.length:
        raise ValueError(f"`y` must hold one target per example of `x`, {examples.length}; got shape {y.shape}.")
    return likelihood.check_targets(y, examples.num_outputs)


def make_draws(index: AbstractIndex, num_samples: int | None, *, chunk_size: int, key: PRNGKeyArray | None) -> Draws:
    """Return the first `num_samples` indices of the key's sequence, or for None the finite support of the index."""
    check_positive("chunk_size", chunk_size)
    if num_samples is None:
        if not hasattr(index, "support"):
            raise ValueError(
                f"`num_samples` must be given for an index without a finite support, {type(index).__name__}; got None."
            )
        return Draws(index, None, index.size, True, chunk_size)
    check_positive("num_samples", num_samples)
    if key is None:
        raise ValueError(f"`key` must be given to draw `num_samples` = {num_samples} indices; got None.")
    return Draws(index, key, num_samples, False, chunk_size)


def choose_batch_size(batch_size: int | None, draws: Draws, num_outputs: int) -> int:
    """Return how many examples to compute at once: as asked, or as many as keep the outputs of a chunk small."""
    if batch_size is not None:
        check_positive("batch_size", batch_size)
        return batch_size
    chunk = min(draws.chunk_size, draws.num_samples)
    return min(_MAX_BATCH, max(1, _CHUNK_OUTPUTS // (chunk * num_outputs)))


@jax.jit
def _has_nan(leaves: list[Array]) -> Bool[Array, ""]:
    """Return whether any of the arrays holds NaN; compiled, because each step of it would be on its own."""
    return jnp.any(jnp.stack([jnp.any(jnp.isnan(leaf)) for leaf in leaves]))


def check_result(name: str, result: PyTree, draws: Draws) -> PyTree:
    """Return `result` if it holds no NaN; otherwise the network itself said NaN, which is an error and not a number."""
    failed = _has_nan([leaf for leaf in jax.tree.leaves(result) if eqx.is_inexact_array(leaf)])
    message = f"`enn` must not output NaN; got NaN in the {name} over {draws.num_samples} indices."
    return require(result, failed, message)
