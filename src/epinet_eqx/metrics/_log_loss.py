"""Marginal and joint log-losses (Section 3.1)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree, Shaped

from .._checks import check_positive, check_sizes
from .._counts import average_cases, dyadic_cases
from .._draws import Draws
from .._enn import AbstractENN
from .._likelihoods import CATEGORICAL, AbstractLikelihood, Categorical
from ._estimate import Estimate
from ._scores import Scores, check_data, checked_scores


class LogLosses(eqx.Module):
    """Marginal log-loss, dyadic joint log-loss and classification error of one pass over the indices.

    Attributes:
        marginal: the log-loss of one label, in nats; standard error over examples.
        joint: the log-loss of tau labels at two anchors, in total nats; standard error over pairs.
        error: how often the most probable class is wrong; None for a regression.
    """

    marginal: Estimate
    joint: Estimate
    error: Estimate | None

    def __str__(self) -> str:
        lines = [f"marginal log-loss {self.marginal}", f"joint log-loss {self.joint}"]
        return "\n".join(lines if self.error is None else [*lines, f"error {self.error}"])


def summarize(scores: Scores, num_samples: int, *, tau: int, exact: bool) -> LogLosses:
    """Return the log-losses of the scores of pairs of examples, whose cases are those of `dyadic_cases`."""

    def over_examples(values: Float[Array, "groups anchors"]) -> Estimate:
        return Estimate(values.reshape(-1), num_samples, 1, exact)

    _, weights = dyadic_cases(tau)
    joint = Estimate(-average_cases(weights, scores.joint), num_samples, tau, exact)
    error = None if scores.wrong is None else over_examples(scores.wrong)
    return LogLosses(over_examples(-scores.marginal), joint, error)


def log_losses(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    tau: int = 10,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> LogLosses:
    """Return marginal log-loss, exact dyadic joint log-loss and classification error, from one streamed pass.

    The outputs at the indices are never stored, so memory does not grow with `num_samples`.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length; consecutive pairs are anchors.
        y: targets: classes, or the values of a regression.
        draws: the indices to average over.
        tau: number of labels that are predicted jointly.
        likelihood: how an output becomes a distribution of the target.
    """
    check_positive("tau", tau)
    data = check_data(enn, x, y, draws, group_size=2, likelihood=likelihood)
    counts, _ = dyadic_cases(tau)
    (scores,) = checked_scores(enn, data, counts, with_error=isinstance(likelihood, Categorical))
    return summarize(scores, data.draws.num_samples, tau=tau, exact=data.draws.exact)


def log_loss_curve(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    sample_counts: tuple[int, ...],
    tau: int = 10,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> tuple[LogLosses, ...]:
    """Return the log-losses at several numbers of indices M, from one pass over the largest.

    Each entry is what `log_losses` returns for the first M of the draws.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length; consecutive pairs are anchors.
        y: targets: classes, or the values of a regression.
        draws: sampled indices.
        sample_counts: the values of M, increasing, at most the number of draws.
        tau: number of labels that are predicted jointly.
        likelihood: how an output becomes a distribution of the target.
    """
    check_positive("tau", tau)
    check_sizes("sample_counts", sample_counts)
    if not sample_counts or list(sample_counts) != sorted(set(sample_counts)):
        raise ValueError(f"`sample_counts` must increase; got {sample_counts}.")
    if draws.exact:
        raise ValueError("`draws` must be sampled for a curve in M; got all indices of a finite support.")
    if sample_counts[-1] > draws.num_samples:
        raise ValueError(
            f"`sample_counts` must not exceed the number of draws, {draws.num_samples}; got {sample_counts[-1]}."
        )
    data = check_data(enn, x, y, draws, group_size=2, likelihood=likelihood)
    counts, _ = dyadic_cases(tau)
    with_error = isinstance(likelihood, Categorical)
    curve = checked_scores(enn, data, counts, sample_counts=sample_counts, with_error=with_error)
    return tuple(
        summarize(scores, count, tau=tau, exact=False) for scores, count in zip(curve, sample_counts, strict=True)
    )


def joint_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    tau: int,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Estimate:
    """Return the joint log-loss of the examples as they come: consecutive groups of `tau`, each predicted jointly.

    This evaluates any scheme of sampling joint batches: lay them out one after another. Total nats over the `tau`
    labels; the standard error is over groups. The arguments are those of `log_losses`, and `tau` must divide the number
    of examples.
    """
    check_positive("tau", tau)
    data = check_data(enn, x, y, draws, group_size=tau, likelihood=likelihood)
    (scores,) = checked_scores(enn, data, jnp.ones((1, tau)))
    return Estimate(-scores.joint[:, 0], data.draws.num_samples, tau, data.draws.exact)


def marginal_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Estimate:
    """Return the marginal log-loss in nats: the joint one of single labels. The arguments are those of `log_losses`."""
    return joint_log_loss(enn, x, y, draws, tau=1, likelihood=likelihood)
