"""Active learning in rounds: train, evaluate, query."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from .._checks import check_positive, num_examples, require
from .._draws import Draws
from .._enn import AbstractENN
from .._keys import named_keys
from .._xla import jit_for_one_run
from ..losses import Batch
from ._acquire import acquire
from ._batch_bald import batch_bald
from ._pool_learner import PoolLearner

Acquisition = Callable[..., Int[Array, " size"]]
"""A rule that chooses inputs to label.

`acquisition(enn, x, size, available=available, key=key)`, with the whole pool `x`, returns the positions of `size`
inputs that are available.
"""


def _new_draws(enn: AbstractENN, num_samples: int | None, *, key: PRNGKeyArray) -> Draws:
    """Return the draws of one round: the ENN, and with it the index, changes from round to round."""
    return Draws.all(enn.index) if num_samples is None else Draws.sample(enn.index, num_samples, key=key)


def by_score(score: Callable[..., Float[Array, " batch"]], *, num_samples: int | None, **options: Any) -> Acquisition:
    """Return the rule that takes the inputs with the largest scores: `by_score(bald_scores, num_samples=100)`.

    Each round draws `num_samples` indices anew, or takes all of a finite support if it is None.
    """

    def choose(
        enn: AbstractENN, x: PyTree[Array], size: int, *, available: Bool[Array, " batch"], key: PRNGKeyArray
    ) -> Int[Array, " size"]:
        draws = _new_draws(enn, num_samples, key=key)
        return acquire(score(enn, x, draws=draws, **options), size, available=available)

    return choose


def by_batch_bald(*, num_samples: int | None, max_combinations: int = 1000) -> Acquisition:
    """Return the rule that chooses a batch by `batch_bald`, with indices drawn anew each round."""

    def choose(
        enn: AbstractENN, x: PyTree[Array], size: int, *, available: Bool[Array, " batch"], key: PRNGKeyArray
    ) -> Int[Array, " size"]:
        draws = _new_draws(enn, num_samples, key=key)
        choice = batch_bald(enn, x, size, draws, available=available, max_combinations=max_combinations, key=key)
        return choice.positions

    return choose


def at_random(
    enn: AbstractENN, x: PyTree[Array], size: int, *, available: Bool[Array, " batch"], key: PRNGKeyArray
) -> Int[Array, " size"]:
    """Choose uniformly: the baseline for the other rules."""
    return acquire(jr.uniform(key, available.shape), size, available=available)


class ActiveRun(eqx.Module):
    """The record of an active-learning run.

    Attributes:
        positions: positions of the labeled inputs in the order of labeling, starting with the initial ones.
        num_labels: number of labels each round was trained on.
        evaluations: results of `evaluate`, stacked over rounds.
        enn: the ENN of the last round.
    """

    positions: Int[Array, " labels"]
    num_labels: Int[Array, " rounds"]
    evaluations: PyTree[Array]
    enn: AbstractENN


@jit_for_one_run
def _train(
    learner: PoolLearner,
    pool: Batch,
    positions: Int[Array, " labels"],
    num_labels: Int[Array, ""],
    evaluate: Callable[[AbstractENN], PyTree[Array]],
    key: PRNGKeyArray,
) -> tuple[AbstractENN, PyTree[Array]]:
    """Train the ENN of a round and evaluate it."""
    enn = learner.train(jax.tree.map(lambda leaf: leaf[positions], pool), num_labels, key=key)
    return enn, evaluate(enn)


def run_active_learning(
    learner: PoolLearner,
    pool: Batch,
    acquisition: Acquisition,
    *,
    start: Int[Array, " start"],
    num_rounds: int,
    size: int,
    evaluate: Callable[[AbstractENN], PyTree[Array]],
    key: PRNGKeyArray,
) -> ActiveRun:
    """Query labels of a pool in rounds: train, evaluate, choose, repeat.

    Training and evaluation are one compiled program for all rounds. Map the function over keys with `eqx.filter_vmap`
    to have many runs at once.

    Args:
        learner: trains the ENN of a round.
        pool: all inputs with their labels; labels not yet queried are never read.
        acquisition: chooses the inputs: `by_score(bald_scores, num_samples=100)`, `by_batch_bald(...)`, `at_random`.
        start: positions of the inputs labeled at the start, for instance from `balanced_start`.
        num_rounds: number of queries.
        size: number of labels per query.
        evaluate: maps the ENN of a round to numbers, for instance its accuracy; a pure function.
        key: random key of all rounds.
    """
    check_positive("num_rounds", num_rounds)
    check_positive("size", size)
    length, known = num_examples("pool", pool), num_examples("start", start)
    total = known + num_rounds * size
    if total > length:
        raise ValueError(
            f"`pool` must hold at least the {total} inputs that {known} at the start and {num_rounds} rounds of {size} "
            f"ask for; got {length}."
        )
    available = jnp.ones(length, dtype=bool).at[start].set(False)
    available = require(
        available,
        jnp.sum(available) != length - known,
        f"`start` must hold different positions from 0 to {length - 1} of the pool.",
    )
    positions = jnp.zeros(total, start.dtype).at[:known].set(start)
    counts = [known + number * size for number in range(num_rounds + 1)]
    keys = [named_keys(jr.fold_in(key, number), "train", "choice") for number in range(num_rounds + 1)]
    enn, found = _train(learner, pool, positions, jnp.asarray(known), evaluate, keys[0][0])
    evaluations = [found]
    for (_, choice_key), (train_key, _), count in zip(keys, keys[1:], counts, strict=False):
        chosen = acquisition(enn, pool.x, size, available=available, key=choice_key)
        positions = positions.at[count : count + size].set(chosen)
        available = available.at[chosen].set(False)
        enn, found = _train(learner, pool, positions, jnp.asarray(count + size), evaluate, train_key)
        evaluations.append(found)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *evaluations)
    return ActiveRun(positions, jnp.asarray(counts), stacked, enn)
