"""Checks shared by the functions of this package."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._checks import is_traced, require


def _found(values: Float[Array, "..."], wrong: Bool[Array, ""]) -> str:
    """Return the range of the values for a message, or nothing while they are traced."""
    return "" if is_traced(wrong) else f"; got values from {float(jnp.min(values)):g} to {float(jnp.max(values)):g}"


def check_distribution(name: str, probs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `probs`, which must be a table of at least one non-negative number that add up to one."""
    if probs.size == 0:
        raise ValueError(f"`{name}` must not be empty; got shape {probs.shape}.")
    wrong = ~jnp.all(probs >= 0)
    probs = require(probs, wrong, f"`{name}` must not be negative{_found(probs, wrong)}.")
    total = jnp.sum(probs)
    # A table of ten binary labels, averaged over samples in single precision, is off by less than a thousandth.
    wrong = ~(jnp.abs(total - 1) <= 1e-3)
    found = "" if is_traced(wrong) else f"; got a sum of {float(total):g}"
    return require(probs, wrong, f"`{name}` must add up to one{found}.")


def check_actions(name: str, values: Float[Array, "..."]) -> None:
    """Raise unless the leading axis of `values` holds at least one action."""
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"`{name}` must hold at least one action along its first axis; got shape {values.shape}.")
