"""One streamed pass over the indices: the log-probabilities behind all log-losses (Appendix E)."""

from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from ._counts import weigh_counts
from ._draws import (
    Draws,
    LogSum,
    check_draws,
    check_result,
    choose_batch_size,
    map_batches,
    outputs_at,
)
from ._enn import AbstractENN
from ._examples import check_examples, check_targets
from ._likelihoods import AbstractLikelihood, target_log_probs
from ._xla import sum_in_turn


class Scores(NamedTuple):
    """Log-probabilities of targets, one by one and jointly, all from the same indices.

    Attributes:
        marginal: log-probability of each target.
        joint: log-probability of each case of a group, a case being its targets with repetition.
        wrong: one where the most probable class is not the target; None if not requested.
    """

    marginal: Float[Array, "*temperatures groups anchors"]
    joint: Float[Array, "*temperatures groups cases"]
    wrong: Float[Array, "*temperatures groups anchors"] | None


class _Sums(eqx.Module):
    """The sums over indices behind the scores."""

    marginal: LogSum
    joint: LogSum
    probs: Float[Array, "groups anchors classes"] | None

    def scores(self, count: int, y: Shaped[Array, "groups anchors ..."]) -> Scores:
        """Return the averages over the `count` indices so far."""
        wrong = None
        if self.probs is not None:
            wrong = (jnp.argmax(self.probs, axis=-1) != y).astype(self.probs.dtype)
            # A prediction that is not a number is neither right nor wrong.
            wrong = jnp.where(jnp.isnan(self.marginal.total), jnp.nan, wrong)
        return Scores(self.marginal.log_mean(count), self.joint.log_mean(count), wrong)


def stream_scores(
    enn: AbstractENN,
    x: PyTree[Array],
    y: Shaped[Array, "batch ..."],
    counts: Float[Array, "... cases anchors"],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood,
    sample_counts: tuple[int, ...],
    batch_size: int,
    num_classes: int | None,
    temperatures: Float[Array, " temperatures"] | None = None,
) -> tuple[Scores, ...]:
    """Return the scores at each M of `sample_counts`, from one pass. Nothing is checked; NaN is passed on.

    Args:
        enn: the ENN.
        x: inputs; consecutive ones form groups, one input per anchor of `counts`.
        y: targets, as the likelihood takes them.
        counts: how many times each anchor occurs in each case, for each group or the same for all.
        draws: the indices to average over.
        likelihood: how an output becomes a distribution of the target.
        sample_counts: increasing numbers of indices after which scores are reported.
        batch_size: how many examples are computed at a time.
        num_classes: number of classes, to find the most probable ones as well; None otherwise.
        temperatures: divisors of the outputs; the scores then have a leading axis of temperatures.
    """
    cases, anchors = counts.shape[-2:]
    groups = y.shape[0] // anchors

    def at(tree: PyTree[Array]) -> tuple[Scores, ...]:
        x, y, own_counts = tree
        size = y.shape[0]
        embeddings = jax.vmap(enn.embed)(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), x))
        targets = y.reshape(-1, *y.shape[2:])

        def tally(sums: _Sums, outputs: Float[Array, "samples batch classes"], valid: Bool[Array, " samples"]) -> _Sums:
            log_p = target_log_probs(likelihood, outputs, targets).reshape(-1, size, anchors)
            joint = weigh_counts(counts if own_counts is None else own_counts, log_p)
            probs = sums.probs
            if probs is not None:
                predicted = jax.vmap(jax.vmap(likelihood.mean))(outputs)
                probs = probs + sum_in_turn(valid, predicted).reshape(probs.shape)
            return _Sums(sums.marginal.add(log_p, valid), sums.joint.add(joint, valid), probs)

        def step(sums: _Sums, zs: Shaped[Array, "samples ..."], valid: Bool[Array, " samples"]) -> _Sums:
            outputs = outputs_at(enn, embeddings, zs)
            if temperatures is None:
                return tally(sums, outputs, valid)
            # One temperature at a time, so that the chunk stays in the cache.
            return jax.lax.map(lambda each: tally(each[0], outputs / each[1], valid), (sums, temperatures))

        probs = None if num_classes is None else jnp.zeros((size, anchors, num_classes))
        sums = _Sums(LogSum.zeros((size, anchors)), LogSum.zeros((size, cases)), probs)
        if temperatures is not None:
            copies = temperatures.size
            sums = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (copies, *leaf.shape)), sums)
        results = []
        for start, stop in pairwise((0, *sample_counts)):
            sums = draws.fold(step, sums, start=start, stop=stop)
            if temperatures is None:
                results.append(sums.scores(stop, y))
            else:
                # Groups first, along which batches are joined.
                results.append(jax.vmap(lambda sums, stop=stop: sums.scores(stop, y), out_axes=1)(sums))
        return tuple(results)

    # Batches consist of whole groups.
    x, y = jax.tree.map(lambda leaf: leaf.reshape(groups, anchors, *leaf.shape[1:]), (x, y))
    tree = (x, y, counts if counts.ndim == 3 else None)
    found = map_batches(at, tree, length=groups, batch_size=max(1, batch_size // anchors))
    return found if temperatures is None else jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), found)


class Data(NamedTuple):
    """Checked examples with their targets, the indices to use, and how many examples to compute at a time."""

    x: PyTree[Array]
    y: Shaped[Array, "batch ..."]
    length: int
    num_outputs: int
    likelihood: AbstractLikelihood
    draws: Draws
    batch_size: int


def check_data(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "..."],
    draws: Draws,
    *,
    group_size: int,
    likelihood: AbstractLikelihood,
) -> Data:
    """Return the data of an evaluation; raise a sentence about the first argument that is wrong."""
    draws = check_draws(enn, draws)
    examples = check_examples(enn, "x", x)
    if examples.length % group_size:
        raise ValueError(
            f"`x` must hold a multiple of {group_size} examples, since consecutive ones form groups of {group_size}; "
            f"got {examples.length}."
        )
    y = check_targets(likelihood, y, examples)
    batch_size = choose_batch_size(draws, examples.num_outputs)
    return Data(examples.x, y, examples.length, examples.num_outputs, likelihood, draws, batch_size)


_compiled_scores = eqx.filter_jit(stream_scores)


def checked_scores(
    enn: AbstractENN,
    data: Data,
    counts: Float[Array, "... cases anchors"],
    *,
    sample_counts: tuple[int, ...] | None = None,
    with_error: bool = False,
    temperatures: Float[Array, " temperatures"] | None = None,
) -> tuple[Scores, ...]:
    """Return the scores at each M of `sample_counts`, by default all indices; raise if any is NaN."""
    scores = _compiled_scores(
        enn,
        data.x,
        data.y,
        counts,
        data.draws,
        likelihood=data.likelihood,
        sample_counts=sample_counts or (data.draws.num_samples,),
        batch_size=data.batch_size,
        num_classes=data.num_outputs if with_error else None,
        temperatures=temperatures,
    )
    return check_result("log-probabilities", scores, data.draws)
