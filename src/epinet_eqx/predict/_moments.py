"""Mean and variance of the output over the index: predictions of a regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from .._draws import Draws, check_draws, check_result, choose_batch_size, map_batches, masked_sum, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples


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
    draws: Draws,
) -> Moments:
    r"""Return mean and variance over $z \sim P_Z$ of the outputs at each input.

    The variance divides by the number of indices. For a `Gaussian` likelihood, the variance of a target is this one
    plus `scale ** 2`.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        draws: the indices to average over.
    """
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    result = _moments(enn, examples.x, examples.length, examples.num_outputs, draws, batch_size)
    return check_result("moments", result, draws)
