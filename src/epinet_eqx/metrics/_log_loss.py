"""Marginal and joint log-losses, dyadic sampling among them (Section 3.1, Appendix E)."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive, check_scalar, check_sizes
from .._counts import average_cases, dyadic_cases
from .._draws import Draws, check_draws
from .._enn import AbstractENN
from .._keys import named_keys
from .._likelihoods import CATEGORICAL, AbstractLikelihood
from .._scores import Scores, check_data, checked_scores
from ._estimate import Estimate


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

    @classmethod
    def of_pairs(cls, scores: Scores, num_samples: int, *, tau: int, exact: bool) -> "LogLosses":
        """Return the log-losses of the scores of pairs of examples, whose cases are those of `dyadic_cases`."""

        def over_examples(values: Float[Array, "groups anchors"]) -> Estimate:
            return Estimate(values.reshape(-1), num_samples, 1, exact)

        _, weights = dyadic_cases(tau)
        joint = Estimate(-average_cases(weights, scores.joint), num_samples, tau, exact)
        error = None if scores.wrong is None else over_examples(scores.wrong)
        return cls(over_examples(-scores.marginal), joint, error)

    def __str__(self) -> str:
        lines = [f"marginal log-loss {self.marginal}", f"joint log-loss {self.joint}"]
        return "\n".join(lines if self.error is None else [*lines, f"error {self.error}"])


def _pair_losses(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    tau: int,
    likelihood: AbstractLikelihood,
    *,
    with_error: bool,
    sample_counts: tuple[int, ...] | None = None,
) -> tuple[LogLosses, ...]:
    """Return the log-losses of consecutive pairs of examples at each M of `sample_counts`, by default all indices."""
    check_positive("tau", tau)
    data = check_data(enn, x, y, draws, group_size=2, likelihood=likelihood)
    counts, _ = dyadic_cases(tau)
    found = checked_scores(enn, data, counts, sample_counts=sample_counts, with_error=with_error)

    return tuple(
        LogLosses.of_pairs(scores, count, tau=tau, exact=draws.exact)
        for scores, count in zip(found, sample_counts or (draws.num_samples,), strict=True)
    )


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

    The outputs at the indices are never stored, so memory does not grow with the number of draws.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length; consecutive pairs are anchors.
        y: targets: classes, or the values of a regression.
        draws: the indices to average over.
        tau: number of labels that are predicted jointly.
        likelihood: how an output becomes a distribution of the target.
    """
    return _pair_losses(enn, x, y, draws, tau, likelihood, with_error=likelihood.has_classes)[0]


class LossGrid(eqx.Module):
    """Log-losses at several temperatures, numbers of indices M and numbers of labels tau, from one pass.

    Attributes:
        marginal: the log-loss of each example.
        joint: for each tau, the exact dyadic log-loss of each pair, in total nats.
        error: one where the most probable class is wrong; None for a regression, or if it was not asked for.
        sample_counts: the values of M.
        exact: whether the average over the index is exact.
    """

    marginal: Float[Array, "temperatures counts examples"]
    joint: dict[int, Float[Array, "temperatures counts pairs"]]
    error: Float[Array, "temperatures counts examples"] | None
    sample_counts: tuple[int, ...] = eqx.field(static=True)
    exact: bool = eqx.field(static=True)

    def losses(self, tau: int, *, temperature: int = 0, count: int = -1) -> LogLosses:
        """Return the log-losses of `tau` labels, at these positions among the temperatures and the values of M."""
        num_samples, at = self.sample_counts[count], (temperature, count)
        error = None if self.error is None else Estimate(self.error[at], num_samples, 1, self.exact)
        return LogLosses(
            Estimate(self.marginal[at], num_samples, 1, self.exact),
            Estimate(self.joint[tau][at], num_samples, tau, self.exact),
            error,
        )


def loss_grid(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    temperatures: Float[ArrayLike, " temperatures"] | Sequence[float] = (1.0,),
    taus: tuple[int, ...] = (10,),
    sample_counts: tuple[int, ...] | None = None,
    likelihood: AbstractLikelihood = CATEGORICAL,
    with_error: bool = True,
) -> LossGrid:
    """Return log-losses at all combinations of temperature, M and tau; the outputs are computed only once.

    The arguments are those of `log_losses`, with several `taus`, with `temperatures` that divide the outputs as in
    `Tempered`, and with increasing values of M in `sample_counts`, by default the number of draws only. Where many
    temperatures are compared by their losses alone, `with_error=False` saves a third of the time.
    """
    check_sizes("taus", taus)
    if not taus or len(set(taus)) < len(taus):
        raise ValueError(f"`taus` must hold at least one number of labels, and each once; got {taus}.")
    values = jnp.asarray(temperatures, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"`temperatures` must be a vector of at least one temperature; got shape {values.shape}.")
    check_scalar("temperatures", jnp.min(values), minimum=1e-6)
    draws = check_draws(enn, draws)
    used = (draws.num_samples,) if sample_counts is None else sample_counts
    if used != (draws.num_samples,):
        _check_curve(draws, used)
    data = check_data(enn, x, y, draws, group_size=2, likelihood=likelihood)
    cases = [dyadic_cases(tau) for tau in taus]
    counts = jnp.concatenate([own for own, _ in cases])
    with_error = with_error and likelihood.has_classes
    found = checked_scores(enn, data, counts, sample_counts=used, with_error=with_error, temperatures=values)
    ends = list(itertools.accumulate(tau + 1 for tau in taus))[:-1]
    parts = zip(*(jnp.split(scores.joint, ends, axis=-1) for scores in found), strict=True)
    joint = {
        tau: jnp.stack([-jax.vmap(average_cases, (None, 0))(weights, own) for own in part], axis=1)
        for tau, (_, weights), part in zip(taus, cases, parts, strict=True)
    }
    marginal = jnp.stack([-scores.marginal.reshape(values.size, -1) for scores in found], axis=1)
    error = None
    if with_error:
        error = jnp.stack([jnp.asarray(scores.wrong).reshape(values.size, -1) for scores in found], axis=1)
    return LossGrid(marginal, joint, error, used, draws.exact)


def _check_curve(draws: Draws, sample_counts: tuple[int, ...]) -> None:
    """Raise unless `sample_counts` are increasing numbers of sampled draws."""
    check_sizes("sample_counts", sample_counts)
    if not sample_counts or list(sample_counts) != sorted(set(sample_counts)):
        raise ValueError(f"`sample_counts` must increase; got {sample_counts}.")
    if draws.exact:
        raise ValueError("`draws` must be sampled for a curve in M; got all indices of a finite support.")
    if sample_counts[-1] > draws.num_samples:
        raise ValueError(
            f"`sample_counts` must not exceed the number of draws, {draws.num_samples}; got {sample_counts[-1]}."
        )


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

    Each entry is what `log_losses` returns for the first M of the draws, which must be sampled. The other arguments are
    its own; `sample_counts` are the values of M, increasing and at most the number of draws.
    """
    _check_curve(draws, sample_counts)
    return _pair_losses(
        enn, x, y, draws, tau, likelihood, with_error=likelihood.has_classes, sample_counts=sample_counts
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


def dyadic_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    tau: int = 10,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Estimate:
    r"""Return the joint log-loss of dyadic sampling, averaged *exactly* over how the draws fall on the two anchors.

    The anchors are consecutive pairs of examples. Of $\tau$ draws from a pair, $k$ fall on its first with a binomial
    probability, and the joint prediction (Eq. 2) depends on nothing but $k$, so no draw is needed. Total nats over the
    $\tau$ labels; the standard error is over pairs. The arguments are those of `log_losses`.
    """
    return _pair_losses(enn, x, y, draws, tau, likelihood, with_error=False)[0].joint


def sampled_dyadic_log_loss(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    tau: int = 10,
    num_anchors: int = 2,
    num_draws: int = 1,
    likelihood: AbstractLikelihood = CATEGORICAL,
    key: PRNGKeyArray,
) -> Estimate:
    r"""Return the joint log-loss of $\tau$ labels drawn with replacement from each group of anchors.

    The anchors are consecutive groups of `num_anchors` examples. For two anchors `dyadic_log_loss` gives the
    expectation of this. Total nats over the $\tau$ labels; the standard error is over groups.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis, whose length `num_anchors` divides.
        y: targets.
        draws: the indices to average over.
        tau: number of labels that are predicted jointly.
        num_anchors: number of anchors of a group.
        num_draws: how often the `tau` labels of a group are drawn; the mean over these is taken first.
        likelihood: how an output becomes a distribution of the target.
        key: random key of the draws from the anchors.
    """
    check_positive("tau", tau)
    check_positive("num_anchors", num_anchors)
    check_positive("num_draws", num_draws)
    data = check_data(enn, x, y, draws, group_size=num_anchors, likelihood=likelihood)
    (stream,) = named_keys(key, "anchors")

    def draw(group: Array) -> Float[Array, "draws anchors"]:
        anchors = jr.randint(jr.fold_in(stream, group), (num_draws, tau, 1), 0, num_anchors)
        return jnp.sum((anchors == jnp.arange(num_anchors)[None, None, :]).astype(float), axis=1)

    counts = jax.vmap(draw)(jnp.arange(data.length // num_anchors))
    (scores,) = checked_scores(enn, data, counts)
    return Estimate(-jnp.mean(scores.joint, axis=1), data.draws.num_samples, tau, data.draws.exact)
