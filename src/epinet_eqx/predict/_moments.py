"""Mean and variance of the output over the index: predictions of a regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree, Shaped

from .._enn import AbstractENN
from ._inputs import check_examples, check_result, choose_batch_size, make_draws
from ._stream import Draws, map_batches, masked_sum, outputs_at


class Moments(eqx.Module):
    """Mean and variance of the outputs over the index; the variance is the epistemic part of a regression's."""

    mean: Float[Array, "batch classes"]
    variance: Float[Array, "batch classes"]


@eqx.filter_jit
def _moments(
    enn: AbstractENN, x: PyTree[Array], length: int, num_outputs: int, draws: Draws, batch_size: int
) -> Moments:
    """Return the moments, batch by batch and chunk by chunk."""

    def at(x: PyTree[Array]) -> Moments:
        embeddings = jax.vmap(enn.embed)(x)
        zeros = jnp.zeros((jax.tree.leaves(x)[0].shape[0], num_outputs))

        def step(
            carry: tuple[Array, Array, Array], zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]
        ) -> tuple[Array, Array, Array]:
            count, mean, squares = carry
            outputs = outputs_at(enn, embeddings, zs)
            added = jnp.sum(valid.astype(outputs.dtype))
            chunk_mean = masked_sum(valid, outputs) / added
            # Sums of squared deviations are merged, never differences of large squares.
            change = chunk_mean - mean
            squares = squares + masked_sum(valid, jnp.square(outputs - chunk_mean[None]))
            squares = squares + jnp.square(change) * (count * added / (count + added))
            return count + added, mean + change * (added / (count + added)), squares

        count, mean, squares = draws.fold(step, (jnp.zeros(()), zeros, zeros))
        return Moments(mean, squares / count)

    return map_batches(at, x, length=length, batch_size=batch_size)


def moments(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    *,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Moments:
    r"""Return mean and variance over $z \sim P_Z$ of the outputs at each input.

    The variance divides by the number of indices. For a `Gaussian` likelihood, the variance of a target is this one
    plus `scale ** 2`.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        num_samples: number of indices; None averages exactly over the finite support of the index.
        chunk_size: how many indices are computed at a time.
        batch_size: how many inputs are computed at a time; chosen to fit if not given.
        key: random key of the indices, the same ones for all inputs; may be None with `num_samples=None`.
    """
    draws = make_draws(enn.index, num_samples, chunk_size=chunk_size, key=key)
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(batch_size, draws, examples.num_outputs)
    result = _moments(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("moments", result, draws)
