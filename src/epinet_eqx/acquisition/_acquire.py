"""Choosing inputs of a pool to label."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .._checks import check_available, check_finite, check_labels, check_positive, is_traced, require


def acquire(
    scores: Float[Array, " batch"], batch_size: int, *, available: Bool[Array, " batch"] | None = None
) -> Int[Array, " acquired"]:
    """Return the positions of the inputs with the largest scores, largest first; ties go to the earlier.

    Args:
        scores: a score of each input of the pool.
        batch_size: how many inputs to choose.
        available: which inputs may be chosen; by default all.
    """
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
