"""Exponential moving averages of parameters and running statistics."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._tree import trainable_mask


def averaged_part(model: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
    """Return what is averaged: trainable parameters, and the floating-point arrays of the model state."""
    return eqx.filter(model, trainable_mask(model)), eqx.filter(model_state, eqx.is_inexact_array)


def start_ema(model: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
    """Return the average before the first step: a copy of the values themselves."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), averaged_part(model, model_state))


def ema_decay_at(decay: float, step: Int[Array, ""]) -> Float[Array, ""]:
    """Return the weight of the old average at a step: `decay`, but at first so much less that the start is forgotten.

    It is `(1 + t) / (10 + t)` until that reaches `decay`: the average then reaches back a tenth of the run.
    """
    t = step.astype(jnp.float32)
    return jnp.minimum(decay, (1 + t) / (10 + t))


def update_ema(ema: Any, model: PyTree, model_state: PyTree, weight: Float[Array, ""]) -> Any:
    """Return `weight * ema + (1 - weight) * new`."""
    new = averaged_part(model, model_state)
    return jax.tree.map(lambda old, new: old + (1 - weight).astype(old.dtype) * (new - old), ema, new)


def check_decay(decay: float | None) -> None:
    """Raise unless `decay` is in [0, 1), or None."""
    if decay is not None and not 0 <= decay < 1:
        raise ValueError(f"`ema_decay` must be at least 0 and less than 1, or None; got {decay}.")
