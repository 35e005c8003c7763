"""How well a score tells unfamiliar inputs from familiar ones."""

import math

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Shaped

from .._checks import check_finite


def _check(
    scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."]
) -> tuple[Float[Array, " inside"], Float[Array, " outside"]]:
    """Return two vectors of finite scores."""
    checked = []
    for name, scores in (("scores_in", scores_in), ("scores_out", scores_out)):
        scores = jnp.asarray(scores)
        if scores.ndim != 1 or scores.size == 0 or not jnp.issubdtype(scores.dtype, jnp.floating):
            raise ValueError(
                f"`{name}` must be a vector of at least one floating-point score; "
                f"got shape {scores.shape} of {scores.dtype}."
            )
        checked.append(check_finite(name, scores))
    return checked[0], checked[1]


def _share_at_least(scores: Float[Array, " count"], thresholds: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return which share of the scores is at least each threshold."""
    below = jnp.searchsorted(jnp.sort(scores), thresholds, side="left")
    return 1 - below.astype(scores.dtype) / scores.size


def auroc(scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."]) -> Float[Array, ""]:
    """Return the area under the ROC curve: how often an outside score exceeds an inside one, ties counting one half.

    Args:
        scores_in: vector of the scores of in-distribution inputs, such as `uncertainty(...).epistemic`.
        scores_out: vector of the scores of out-of-distribution inputs, made with the same indices; higher means less
            familiar.
    """
    inside, outside = _check(scores_in, scores_out)
    ordered = jnp.sort(inside)
    below = jnp.searchsorted(ordered, outside, side="left").astype(inside.dtype)
    at_most = jnp.searchsorted(ordered, outside, side="right").astype(inside.dtype)
    return jnp.mean((below + at_most) / (2 * inside.size))


def aupr(scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."]) -> Float[Array, ""]:
    """Return the area under the precision-recall curve as average precision; outside inputs are the positives.

    Args:
        scores_in: vector of the scores of in-distribution inputs.
        scores_out: vector of the scores of out-of-distribution inputs, made with the same indices; higher means less
            familiar.
    """
    inside, outside = _check(scores_in, scores_out)
    # Each positive raises recall by one over their number, at the precision of the threshold of its own score.
    hits = _share_at_least(outside, outside) * outside.size
    false_alarms = _share_at_least(inside, outside) * inside.size
    return jnp.mean(hits / (hits + false_alarms))


def fpr_at_tpr(
    scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."], *, tpr: float = 0.95
) -> Float[Array, ""]:
    """Return the false positive rate at the highest threshold that detects a share `tpr` of the outside inputs.

    Args:
        scores_in: vector of the scores of in-distribution inputs, whose detection is a false positive.
        scores_out: vector of the scores of out-of-distribution inputs, made with the same indices; higher means less
            familiar.
        tpr: the true positive rate to reach.
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"`tpr` must be above 0 and at most 1; got {tpr}.")
    inside, outside = _check(scores_in, scores_out)
    # The margin keeps a product such as 0.95 * 20 from being rounded up to the next whole number.
    detected = math.ceil(tpr * outside.size - 1e-9)
    threshold = jnp.sort(outside)[outside.size - detected]
    return _share_at_least(inside, threshold)
