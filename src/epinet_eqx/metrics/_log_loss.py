"""Marginal and joint log-losses (Section 3.1)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive, check_sizes
from .._enn import AbstractENN
from ..predict._likelihood import CATEGORICAL, AbstractLikelihood, Categorical
from ._dyadic import average_cases, dyadic_counts
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
    """Return the log-losses of the scores of pairs of examples, whose cases are those of `dyadic_counts`."""

    def over_examples(values: Float[Array, "groups anchors"]) -> Estimate:
        return Estimate(values.reshape(-1), num_samples, 1, exact)

    _, weights = dyadic_counts(tau)
    joint = Estimate(-average_cases(weights, scores.joint), num_samples, tau, exact)
    error = None if scores.wrong is None else over_examples(scores.wrong)
    return LogLosses(over_examples(-scores.marginal), joint, error)


def log_losses(
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
) -> LogLosses:
    """Return marginal log-loss, exact dyadic joint log-loss and classification error, from one streamed pass.

    The outputs at the indices are never stored, so memory does not grow with `num_samples`.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length; consecutive pairs are anchors.
        y: targets: classes, or the values of a regression.
        tau: number of labels that are predicted jointly.
        likelihood: how an output becomes a distribution of the target.
        num_samples: number of indices M; None averages exactly over the finite support of the index.
        chunk_size: how many indices are computed at a time.
        batch_size: how many examples are computed at a time; chosen to fit if not given.
        key: random key of the indices, the same ones for all examples; may be None with `num_samples=None`.
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
    counts, _ = dyadic_counts(tau)
    (scores,) = checked_scores(enn, data, counts, with_error=isinstance(likelihood, Categorical))
    return summarize(scores, data.draws.num_samples, tau=tau, exact=data.draws.exact)


def log_loss_curve(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    sample_counts: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000),
    tau: int = 10,
    likelihood: AbstractLikelihood = CATEGORICAL,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray,
) -> tuple[LogLosses, ...]:
    """Return the log-losses at several numbers of indices M, from one pass over the largest.

    Each entry is what `log_losses` returns for that M and the same key, since a longer sequence of indices begins with
    the shorter one. The arguments are those of `log_losses`, with increasing `sample_counts` in place of `num_samples`.
    """
    check_positive("tau", tau)
    check_sizes("sample_counts", sample_counts)
    if not sample_counts or list(sample_counts) != sorted(set(sample_counts)):
        raise ValueError(f"`sample_counts` must increase; got {sample_counts}.")
    data = check_data(
        enn,
        x,
        y,
        group_size=2,
        likelihood=likelihood,
        num_samples=sample_counts[-1],
        chunk_size=chunk_size,
        batch_size=batch_size,
        key=key,
    )
    counts, _ = dyadic_counts(tau)
    with_error = isinstance(likelihood, Categorical)
    curve = checked_scores(enn, data, counts, sample_counts=sample_counts, with_error=with_error)
    return tuple(
        summarize(scores, count, tau=tau, exact=False) for scores, count in zip(curve, sample_counts, strict=True)
    )


def joint_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    tau: int,
    likelihood: AbstractLikelihood = CATEGORICAL,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Estimate:
    """Return the joint log-loss of the examples as they come: consecutive groups of `tau`, each predicted jointly.

    This evaluates any scheme of sampling joint batches: lay them out one after another. Total nats over the `tau`
    labels; the standard error is over groups. The arguments are those of `log_losses`, and `tau` must divide the number
    of examples.
    """
    check_positive("tau", tau)
    data = check_data(
        enn,
        x,
        y,
        group_size=tau,
        likelihood=likelihood,
        num_samples=num_samples,
        chunk_size=chunk_size,
        batch_size=batch_size,
        key=key,
    )
    (scores,) = checked_scores(enn, data, jnp.ones((1, tau)))
    return Estimate(-scores.joint[:, 0], data.draws.num_samples, tau, data.draws.exact)


def marginal_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    likelihood: AbstractLikelihood = CATEGORICAL,
    num_samples: int | None,
    chunk_size: int = 16,
    batch_size: int | None = None,
    key: PRNGKeyArray | None,
) -> Estimate:
    """Return the marginal log-loss in nats: the joint one of single labels. The arguments are those of `log_losses`."""
    return joint_log_loss(
        enn,
        x,
        y,
        tau=1,
        likelihood=likelihood,
        num_samples=num_samples,
        chunk_size=chunk_size,
        batch_size=batch_size,
        key=key,
    )
