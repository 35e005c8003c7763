"""Dyadic sampling: joint log-losses of tau labels at few anchors (Appendix E)."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive
from .._enn import AbstractENN
from .._keys import named_keys
from ..predict._likelihood import CATEGORICAL, AbstractLikelihood
from ._estimate import Estimate
from ._scores import check_data, checked_scores


def dyadic_counts(tau: int) -> tuple[Float[Array, "cases 2"], Float[Array, " cases"]]:
    """Return how tau draws can fall on two anchors, and the binomial probability of each way."""
    # Logarithms, since the binomial coefficients of tau = 100 are beyond single precision.
    log_choices = [math.lgamma(tau + 1) - math.lgamma(k + 1) - math.lgamma(tau - k + 1) for k in range(tau + 1)]
    weights = jnp.asarray([math.exp(log_choice - tau * math.log(2)) for log_choice in log_choices], dtype=float)
    first = jnp.arange(tau + 1, dtype=float)
    return jnp.stack([first, tau - first], axis=1), weights


def average_cases(weights: Float[Array, " cases"], log_probs: Float[Array, "groups cases"]) -> Float[Array, " groups"]:
    """Return the average over cases; minus infinity if a case is impossible, also where its weight underflows."""
    terms = jnp.where(jnp.isneginf(log_probs), log_probs, weights[None, :] * log_probs)
    return jnp.sum(terms, axis=1)


def dyadic_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    tau: int = 10,
    likelihood: AbstractLikelihood = CATEGORICAL,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Estimate:
    r"""Return the joint log-loss of dyadic sampling, averaged *exactly* over how the draws fall on the two anchors.

    The anchors are consecutive pairs of examples. Of $\tau$ draws from a pair, $k$ fall on its first with a binomial
    probability, and the joint prediction (Eq. 2) depends on nothing but $k$, so no draw is needed. Total nats over the
    $\tau$ labels; the standard error is over pairs.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length.
        y: targets.
        tau: number of labels that are predicted jointly.
        likelihood: how an output becomes a distribution of the target.
        num_samples: number of indices M; None averages exactly over the finite support of the index.
        chunk_size: how many indices are computed at a time.
        batch_size: how many examples are computed at a time; chosen to fit if not given.
        key: random key of the indices, the same ones for all pairs; may be None with `num_samples=None`.
    """
    check_positive("tau", tau)
    data = check_data(
        enn,
        x,
        y,
        group_size=2,
        likelihood=likelihood,
        num_samples=num_samples,
        chunk_size=chunk_size,
        batch_size=batch_size,
        key=key,
    )
    counts, weights = dyadic_counts(tau)
    (scores,) = checked_scores(enn, data, counts)
    return Estimate(-average_cases(weights, scores.joint), data.draws.num_samples, tau, data.draws.exact)


def sampled_dyadic_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    tau: int = 10,
    num_anchors: int = 2,
    num_draws: int = 1,
    likelihood: AbstractLikelihood = CATEGORICAL,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    r"""Return the joint log-loss of $\tau$ labels drawn with replacement from each group of anchors.

    The anchors are consecutive groups of `num_anchors` examples. For two anchors `dyadic_log_loss` gives the
    expectation of this. Total nats over the $\tau$ labels; the standard error is over groups.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis, whose length `num_anchors` divides.
        y: targets.
        tau: number of labels that are predicted jointly.
        num_anchors: number of anchors of a group.
        num_draws: how often the `tau` labels of a group are drawn; the mean over these is taken first.
        likelihood: how an output becomes a distribution of the target.
        num_samples: number of indices M; None averages exactly over the finite support of the index.
        chunk_size: how many indices are computed at a time.
        batch_size: how many examples are computed at a time; chosen to fit if not given.
        key: random key of the indices, and by a stream of its own of the draws from the anchors.
    """
    check_positive("tau", tau)
    check_positive("num_anchors", num_anchors)
    check_positive("num_draws", num_draws)
    data = check_data(
        enn,
        x,
        y,
        group_size=num_anchors,
        likelihood=likelihood,
        num_samples=num_samples,
        chunk_size=chunk_size,
        batch_size=batch_size,
        key=key,
    )
    (stream,) = named_keys(key, "anchors")

    def draw(group: Array) -> Float[Array, "draws anchors"]:
        anchors = jr.randint(jr.fold_in(stream, group), (num_draws, tau, 1), 0, num_anchors)
        return jnp.sum((anchors == jnp.arange(num_anchors)[None, None, :]).astype(float), axis=1)

    counts = jax.vmap(draw)(jnp.arange(data.length // num_anchors))
    (scores,) = checked_scores(enn, data, counts)
    return Estimate(-jnp.mean(scores.joint, axis=1), data.draws.num_samples, tau, data.draws.exact)
