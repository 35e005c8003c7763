"""How good class probabilities are: accuracy, Brier score, calibration."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from .._checks import as_real_array, check_positive, is_traced, require
from .._likelihoods import CATEGORICAL


def _check(
    log_probs: Float[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]
) -> tuple[Float[Array, "batch classes"], Int[Array, " batch"]]:
    """Return normalized log-probabilities and labels within their classes."""
    rows, labels = as_real_array("log_probs", log_probs), as_real_array("y", y)
    if rows.ndim != 2 or rows.size == 0 or not jnp.issubdtype(rows.dtype, jnp.floating):
        raise ValueError(
            f"`log_probs` must hold one row of log-probabilities per example; got shape {rows.shape} of {rows.dtype}."
        )
    if labels.shape != rows.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"`y` must hold one integer class per row of `log_probs`, {rows.shape[0]}; "
            f"got shape {labels.shape} of {labels.dtype}."
        )
    totals = jnp.sum(jnp.exp(rows), axis=1)
    worst = totals[jnp.argmax(jnp.abs(totals - 1))]
    found = "" if is_traced(worst) else f"; got a row whose probabilities sum to {float(worst):g}"
    wrong = ~(jnp.abs(worst - 1) < 1e-3)
    rows = require(rows, wrong, f"`log_probs` must be log-probabilities that sum to one{found}.")
    return rows, CATEGORICAL.check_targets(labels, rows.shape[1])


def _predicted(log_probs: Float[ArrayLike, "..."]) -> Int[Array, " batch"]:
    """Return the most probable classes; NumPy arrays are compared in their own precision, which JAX may reduce."""
    if isinstance(log_probs, np.ndarray):
        return jnp.asarray(np.argmax(log_probs, axis=1).astype(np.int32))
    return jnp.argmax(jnp.asarray(log_probs), axis=1)


def accuracy(log_probs: Float[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]) -> Float[Array, ""]:
    """Return how often the most probable class is the label.

    Args:
        log_probs: log-probabilities, one row of classes per example, such as `marginal_log_probs` returns.
        y: labels, one per example.
    """
    rows, labels = _check(log_probs, y)
    return jnp.mean((_predicted(log_probs) == labels).astype(rows.dtype))


def brier_score(log_probs: Float[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]) -> Float[Array, ""]:
    """Return the mean squared distance of the class probabilities to the label as a one-hot vector, from 0 to 2.

    Args:
        log_probs: log-probabilities, one row of classes per example, such as `marginal_log_probs` returns.
        y: labels, one per example.
    """
    rows, labels = _check(log_probs, y)
    targets = jax.nn.one_hot(labels, rows.shape[1], dtype=rows.dtype)
    return jnp.mean(jnp.sum(jnp.square(jnp.exp(rows) - targets), axis=1))


def expected_calibration_error(
    log_probs: Float[ArrayLike, "..."], y: Shaped[ArrayLike, "..."], *, num_bins: int = 15
) -> Float[Array, ""]:
    """Return the expected calibration error of the most probable class.

    Examples are binned by confidence, into bins of equal width that are closed on the right, so that a confidence of
    one is in the last; the error is the mean over examples of the gap between the accuracy and the mean confidence
    of their bin.

    Args:
        log_probs: log-probabilities, one row of classes per example, such as `marginal_log_probs` returns.
        y: labels, one per example.
        num_bins: number of bins.
    """
    check_positive("num_bins", num_bins)
    rows, labels = _check(log_probs, y)
    confidence = jnp.exp(jnp.max(rows, axis=1))
    right = (_predicted(log_probs) == labels).astype(confidence.dtype)
    edges = jnp.linspace(0.0, 1.0, num_bins + 1, dtype=confidence.dtype)
    # Rounding may leave a confidence just above one.
    bins = jnp.minimum(jnp.searchsorted(edges[1:], confidence, side="left"), num_bins - 1)
    gaps = jax.ops.segment_sum(right - confidence, bins, num_segments=num_bins)
    return jnp.sum(jnp.abs(gaps)) / right.size
