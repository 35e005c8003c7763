"""Learning rates as functions of the step."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_positive

Schedule = Callable[[Any], Float[Array, ""]]


def _check(peak: float, warmup_steps: int) -> None:
    """Raise unless these can begin a schedule."""
    if not peak > 0:
        raise ValueError(f"`peak` must be above 0; got {peak}.")
    if isinstance(warmup_steps, bool) or not isinstance(warmup_steps, int) or warmup_steps < 0:
        raise ValueError(f"`warmup_steps` must be an integer of at least 0; got {warmup_steps!r}.")


def _with_warmup(after: Schedule, peak: float, warmup_steps: int) -> Schedule:
    """Return a schedule that first rises in a line: step 0 already learns, step `warmup_steps` has the peak."""

    def schedule(count: Any) -> Float[Array, ""]:
        t = jnp.asarray(count, dtype=jnp.float32)
        if warmup_steps == 0:
            return after(t)
        return jnp.where(t < warmup_steps, peak * (t + 1) / (warmup_steps + 1), after(t))

    return schedule


def cosine_schedule(peak: float, num_steps: int, *, warmup_steps: int = 0, final: float = 0.0) -> Schedule:
    """Return half a cosine wave from `peak` down to `final`, after a linear warm-up.

    Args:
        peak: the largest rate.
        num_steps: length of the training, warm-up included.
        warmup_steps: steps in which the rate rises.
        final: the rate at the end, and beyond.
    """
    _check(peak, warmup_steps)
    check_positive("num_steps", num_steps)
    if warmup_steps >= num_steps:
        raise ValueError(f"`warmup_steps` must be less than `num_steps`, {num_steps}; got {warmup_steps}.")

    def after(t: Any) -> Float[Array, ""]:
        part = jnp.clip((t - warmup_steps) / (num_steps - warmup_steps), 0.0, 1.0)
        return final + (peak - final) * (1 + jnp.cos(jnp.pi * part)) / 2

    return _with_warmup(after, peak, warmup_steps)


def step_schedule(peak: float, boundaries: Sequence[int], *, factor: float = 0.1, warmup_steps: int = 0) -> Schedule:
    """Return a rate that is multiplied by `factor` at each boundary, after a linear warm-up.

    Args:
        peak: the largest rate.
        boundaries: increasing numbers of steps; the step with that number is the first with the smaller rate.
        factor: what the rate is multiplied by.
        warmup_steps: steps in which the rate rises.
    """
    _check(peak, warmup_steps)
    bounds = tuple(boundaries)
    if list(bounds) != sorted(set(bounds)) or any(bound <= warmup_steps for bound in bounds):
        raise ValueError(f"`boundaries` must increase, from above `warmup_steps`, {warmup_steps}; got {bounds}.")

    def after(t: Any) -> Float[Array, ""]:
        passed = sum((jnp.where(t >= bound, 1.0, 0.0) for bound in bounds), start=jnp.zeros(()))
        return peak * factor**passed

    return _with_warmup(after, peak, warmup_steps)
