"""Dyadic sampling: joint log-losses of tau labels at few anchors (Appendix E)."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive
from .._counts import average_cases, dyadic_cases
from .._draws import Draws
from .._enn import AbstractENN
from .._keys import named_keys
from .._likelihoods import CATEGORICAL, AbstractLikelihood
from ._estimate import Estimate
from ._scores import check_data, checked_scores


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
    $\tau$ labels; the standard error is over pairs.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length.
        y: targets.
        draws: the indices to average over.
        tau: number of labels that are predicted jointly.
        likelihood: how an output becomes a distribution of the target.
    """
    check_positive("tau", tau)
    data = check_data(enn, x, y, draws, group_size=2, likelihood=likelihood)
    counts, weights = dyadic_cases(tau)
    (scores,) = checked_scores(enn, data, counts)
    return Estimate(-average_cases(weights, scores.joint), data.draws.num_samples, tau, data.draws.exact)


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
