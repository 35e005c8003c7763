"""How well a score separates unfamiliar from familiar inputs, computed on the host in double precision."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Shaped

from .._checks import is_traced, refuse_mask

_Scores = Shaped[np.ndarray, "..."]


def _check(scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."]) -> tuple[_Scores, _Scores]:
    """Return two vectors of finite scores on the host, where ranks do not depend on JAX's precision."""
    checked = []
    for name, scores in (("scores_in", scores_in), ("scores_out", scores_out)):
        if is_traced(scores):
            raise ValueError(f"`{name}` must be known numbers, since they are ranked on the host; got a traced array.")
        refuse_mask(name, scores)
        scores = np.asarray(scores)
        if scores.ndim != 1 or scores.size == 0 or not jnp.issubdtype(scores.dtype, jnp.floating):
            raise ValueError(
                f"`{name}` must be a vector of at least one floating-point score; "
                f"got shape {scores.shape} of {scores.dtype}."
            )
        wide = scores.astype(np.float64)
        wrong = int(np.sum(~np.isfinite(wide)))
        if wrong:
            raise ValueError(f"`{name}` must be finite; got {wrong} non-finite of {wide.size} values.")
        checked.append(wide)
    return checked[0], checked[1]


def _share_at_least(scores: _Scores, thresholds: _Scores | np.float64) -> _Scores | np.float64:
    """Return the share of the scores that is at least each threshold."""
    return 1 - np.searchsorted(np.sort(scores), thresholds, side="left") / scores.size


def auroc(scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."]) -> float:
    """Return the area under the ROC curve: how often an outside score exceeds an inside one, ties counting one half.

    Args:
        scores_in: vector of the scores of in-distribution inputs, such as `uncertainty(...).epistemic`.
        scores_out: vector of the scores of out-of-distribution inputs, made with the same indices; higher means less
            familiar.
    """
    inside, outside = _check(scores_in, scores_out)
    ordered = np.sort(inside)
    below, at_most = (np.searchsorted(ordered, outside, side=side) for side in ("left", "right"))
    return float(np.mean((below + at_most) / (2 * inside.size)))


def aupr(scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."]) -> float:
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
    return float(np.mean(hits / (hits + false_alarms)))


def fpr_at_tpr(
    scores_in: Shaped[ArrayLike, "..."], scores_out: Shaped[ArrayLike, "..."], *, tpr: float = 0.95
) -> float:
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
    threshold = np.sort(outside)[outside.size - detected]
    return float(_share_at_least(inside, threshold))
