"""BatchBALD: the batch whose labels are jointly most informative about the index."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import check_available, check_positive
from .._draws import Draws, check_draws, check_result, map_batches, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples
from .._keys import named_keys
from .._likelihoods import check_classes

# Conditional probabilities are computed in chunks of this many, a few megabytes.
_MAX_ENTRIES = 2**20


class BatchChoice(NamedTuple):
    """A batch in the order in which it was chosen.

    Attributes:
        positions: positions in the pool.
        gains: information of each label about the index given the labels before it, in nats; their sum is
            the mutual information of all labels of the batch with the index.
    """

    positions: Int[Array, " size"]
    gains: Float[Array, " size"]


class LabelTable(eqx.Module):
    r"""Combinations of the labels chosen so far, and the posterior of the index given each.

    Attributes:
        probs: probability of each combination.
        weights: $P(z_m \mid \text{combination})$ of each combination and index sample, which add up to one.
    """

    probs: Float[Array, " combinations"]
    weights: Float[Array, "combinations samples"]

    def extend(
        self, class_probs: Float[Array, "samples classes"], max_combinations: int, *, key: PRNGKeyArray
    ) -> "LabelTable":
        """Return the table with one more label: all combinations, or `max_combinations` of them drawn at random.

        The draws are systematic: a combination comes as often as its probability says, up to one.
        """
        num_classes = class_probs.shape[1]
        given = jnp.matmul(self.weights, class_probs, precision=jax.lax.Precision.HIGHEST)
        probs, given = (self.probs[:, None] * given).reshape(-1), given.reshape(-1)
        rows = jnp.arange(probs.shape[0])
        if probs.shape[0] > max_combinations:
            cumulative = jnp.cumsum(probs)
            places = (jnp.arange(max_combinations, dtype=probs.dtype) + jr.uniform(key)) / max_combinations
            rows = jnp.minimum(jnp.searchsorted(cumulative, places * cumulative[-1], side="right"), rows[-1])
            probs = jnp.full(max_combinations, 1 / max_combinations)
        combination, label = jnp.divmod(rows, num_classes)
        # Impossible combinations contribute nothing to any sum.
        scale = jnp.where(given > 0, 1 / jnp.where(given > 0, given, 1.0), 0.0)[rows]
        return LabelTable(probs, self.weights[combination] * class_probs.T[label] * scale[:, None])


def _gains(table: LabelTable, class_probs: Float[Array, "samples batch classes"]) -> Float[Array, " batch"]:
    """Return the information of each label about the index, given the labels of the table."""
    conditional = jnp.einsum("km,mbc->kbc", table.weights, class_probs, precision=jax.lax.Precision.HIGHEST)
    given_labels = table.probs @ jnp.sum(jax.scipy.special.entr(conditional), axis=-1)
    given_index = jnp.mean(jnp.sum(jax.scipy.special.entr(class_probs), axis=-1), axis=0)
    return jnp.maximum(given_labels - given_index, 0.0)


@eqx.filter_jit
def _choose(
    enn: AbstractENN,
    x: PyTree[Array],
    zs: Shaped[Array, "samples ..."],
    table: LabelTable,
    available: Bool[Array, " batch"],
    batch_size: int,
    max_combinations: int,
    key: PRNGKeyArray,
) -> tuple[Int[Array, ""], Float[Array, ""], LabelTable]:
    """Return the next input, its gain, and the table with its label."""

    def class_probs(x: PyTree[Array]) -> Float[Array, "samples batch classes"]:
        return jax.nn.softmax(outputs_at(enn, jax.vmap(enn.embed)(x), zs))

    gains = map_batches(lambda x: _gains(table, class_probs(x)), x, length=available.shape[0], batch_size=batch_size)
    # NaN must win the comparison, so that it reaches the check of the result.
    chosen = jnp.argmax(jnp.where(available, gains, -1.0))
    probs = class_probs(jax.tree.map(lambda leaf: leaf[chosen][None], x))[:, 0]
    return chosen, gains[chosen], table.extend(probs, max_combinations, key=key)


def batch_bald(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    size: int,
    draws: Draws,
    *,
    available: Bool[Array, " batch"] | None = None,
    max_combinations: int = 1000,
    key: PRNGKeyArray,
) -> BatchChoice:
    r"""Choose inputs greedily, each time the one whose label adds the most information about the index.

    Greedy BatchBALD (Kirsch et al., 2019): the joint information $I(y_{1:k}; z)$ knows that two copies of an input tell
    little more than one. The pool is streamed, so memory does not grow with it; the network runs over it once per
    chosen input.

    Args:
        enn: the ENN, of a classification.
        x: the pool, an array or a tree of arrays with a leading batch axis.
        size: how many inputs to choose.
        draws: the indices to average over, all in memory at once.
        available: which inputs may be chosen; by default all.
        max_combinations: the largest number of combinations of the labels chosen so far to enumerate; beyond it, this
            many are drawn from their joint prediction.
        key: random key of these draws.
    """
    check_positive("max_combinations", max_combinations)
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    check_classes(examples.num_outputs)
    free = check_available("size", size, examples.length, available)
    batch_size = draws.batch_size
    if batch_size is None:
        batch_size = max(1, _MAX_ENTRIES // (max(max_combinations, draws.num_samples) * examples.num_outputs))
    zs = draws.indices()
    (table_key,) = named_keys(key, "combinations")
    table = LabelTable(jnp.ones(1), jnp.full((1, draws.num_samples), 1 / draws.num_samples))
    positions, gains = [], []
    for number in range(size):
        number_key = jr.fold_in(table_key, number)
        chosen, gain, table = _choose(enn, examples.x, zs, table, free, batch_size, max_combinations, number_key)
        free = free.at[chosen].set(False)
        positions.append(chosen)
        gains.append(gain)
    choice = BatchChoice(jnp.stack(positions), jnp.stack(gains))
    return check_result("information gains", choice, draws)
