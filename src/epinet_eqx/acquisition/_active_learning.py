"""Active learning in rounds: train on the labels so far, evaluate, query."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from .._checks import (
    Scalar,
    as_floats,
    as_real_array,
    check_available,
    check_finite,
    check_function,
    check_key,
    check_labels,
    check_positive,
    check_scalar,
    is_traced,
    num_examples,
    require,
)
from .._draws import Draws
from .._enn import AbstractENN
from .._keys import named_keys
from .._xla import jit_for_one_run
from ..losses import AbstractLoss, Batch, share_prior
from ..training import EpistemicObjective, UniformBatches, init_state, train_steps
from ._batch_bald import batch_bald


class PoolLearner(eqx.Module):
    """Trains an ENN from scratch in each round, for the same number of steps."""

    make_enn: Callable[[PRNGKeyArray], AbstractENN]
    loss: AbstractLoss | Callable[[PRNGKeyArray], AbstractLoss]
    optimizer: optax.GradientTransformation
    num_steps: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    num_index_samples: int = eqx.field(static=True)
    prior_power: Float[Array, ""]

    def __init__(
        self,
        make_enn: Callable[[PRNGKeyArray], AbstractENN],
        loss: AbstractLoss | Callable[[PRNGKeyArray], AbstractLoss],
        *,
        optimizer: optax.GradientTransformation | None = None,
        num_steps: int = 500,
        batch_size: int = 32,
        num_index_samples: int = 8,
        prior_power: Scalar = 1.0,
    ):
        """Initialize the learner.

        Args:
            make_enn: makes the ENN before training from a key.
            loss: the loss, or a function that makes it from a key. Its penalty is that of all labels together: it is
                divided by their number, as in `ENNAgent`.
            optimizer: any optax optimizer; Adam with a learning rate of 1e-3 by default.
            num_steps: training steps of a round.
            batch_size: number of examples of a step, drawn uniformly with replacement.
            num_index_samples: index samples of a step.
            prior_power: power of the number of labels that the penalty is divided by, as in `ENNAgent`.
        """
        check_function("make_enn", make_enn)
        check_positive("num_steps", num_steps)
        check_positive("batch_size", batch_size)
        check_positive("num_index_samples", num_index_samples)
        self.make_enn = make_enn
        self.loss = loss
        self.optimizer = optax.adam(1e-3) if optimizer is None else optimizer
        self.num_steps = num_steps
        self.batch_size = batch_size
        self.num_index_samples = num_index_samples
        self.prior_power = check_scalar("prior_power", prior_power, minimum=0.0)

    def train(self, data: Batch, num_labels: Int[Array, ""], *, key: PRNGKeyArray) -> AbstractENN:
        """Return the ENN trained on the first `num_labels` examples; all parameters are NaN if training diverged."""
        enn_key, loss_key, train_key = named_keys(key, "enn", "loss", "train")
        loss = self.loss if isinstance(self.loss, AbstractLoss) else self.loss(loss_key)
        state, _ = train_steps(
            init_state(self.make_enn(enn_key), self.optimizer, key=train_key),
            data,
            EpistemicObjective(
                share_prior(loss, num_labels.astype(float) ** self.prior_power),
                num_index_samples=self.num_index_samples,
            ),
            self.optimizer,
            batches=UniformBatches(self.batch_size),
            num_steps=self.num_steps,
            data_size=num_labels,
        )
        diverged = state.step < self.num_steps
        return jax.tree.map(
            lambda leaf: jnp.where(diverged, jnp.nan, leaf) if eqx.is_inexact_array(leaf) else leaf, state.model
        )


def acquire(
    scores: Float[Array, " batch"], batch_size: int, *, available: Bool[Array, " batch"] | None = None
) -> Int[Array, " acquired"]:
    """Return the positions of the inputs with the largest scores, largest first; ties go to the earlier.

    Args:
        scores: a score of each input of the pool.
        batch_size: how many inputs to choose.
        available: which inputs may be chosen; by default all.
    """
    scores = as_floats("scores", scores)
    if scores.ndim != 1:
        raise ValueError(f"`scores` must hold one score per input; got shape {scores.shape}.")
    free = check_available("batch_size", batch_size, scores.shape[0], available)
    scores = check_finite("scores", scores)
    return jax.lax.top_k(jnp.where(free, scores, -jnp.inf), batch_size)[1]


def balanced_start(
    y: Int[Array, " batch"], num_classes: int, per_class: int, *, key: PRNGKeyArray
) -> Int[Array, " start"]:
    """Return the positions of `per_class` random examples of each class, the usual start of active learning.

    Args:
        y: labels of the pool.
        num_classes: the number of classes.
        per_class: number of examples of each class.
        key: random key.
    """
    check_positive("num_classes", num_classes)
    check_positive("per_class", per_class)
    check_key("key", key)
    y = as_real_array("y", y)
    if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
        raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype}.")
    check_labels("y", y, num_classes)
    counts = jnp.bincount(y, length=num_classes)
    few = "" if is_traced(counts) else f"; got {int(jnp.min(counts))} of class {int(jnp.argmin(counts))}"
    message = f"`y` must hold at least {per_class} labels of each of the {num_classes} classes{few}."
    y = require(y, jnp.min(counts) < per_class, message)
    # Random ranks within each class; the lowest ranks are taken.
    order = jr.permutation(key, y.shape[0])
    shuffled = y[order]
    members = (shuffled[:, None] == jnp.arange(num_classes, dtype=y.dtype)[None, :]).astype(jnp.int32)
    rank = jnp.sum(jnp.cumsum(members, axis=0) * members, axis=1) - 1
    place = jnp.where(rank < per_class, shuffled.astype(jnp.int32) * per_class + rank, num_classes * per_class)
    start = jnp.zeros(num_classes * per_class + 1, order.dtype).at[place].set(order)
    return start[:-1]


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

    Each round draws `num_samples` new indices, or takes all of a finite support if it is None.
    """

    def choose(
        enn: AbstractENN, x: PyTree[Array], size: int, *, available: Bool[Array, " batch"], key: PRNGKeyArray
    ) -> Int[Array, " size"]:
        draws = _new_draws(enn, num_samples, key=key)
        return acquire(score(enn, x, draws=draws, **options), size, available=available)

    return choose


def by_batch_bald(*, num_samples: int | None, max_combinations: int = 1000) -> Acquisition:
    """Return the rule that chooses a batch by `batch_bald`, with new indices each round."""

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
    if not isinstance(learner, PoolLearner):
        raise ValueError(f"`learner` must be a `PoolLearner`; got {type(learner).__name__}.")
    check_function("acquisition", acquisition)
    check_function("evaluate", evaluate)
    check_key("key", key)
    check_positive("num_rounds", num_rounds)
    check_positive("size", size)
    if not isinstance(pool, Batch):
        raise ValueError(f"`pool` must be a batch, such as `losses.Batch.of(x, y)`; got {type(pool).__name__}.")
    start = as_real_array("start", start)
    if not jnp.issubdtype(start.dtype, jnp.integer):
        raise ValueError(f"`start` must hold positions, which are integers; got {start.dtype}.")
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
        (jnp.sum(available) != length - known) | (jnp.min(start) < 0),
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
