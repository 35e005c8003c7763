"""The state of training."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._enn import AbstractENN
from .._tree import trainable_mask


class TrainState(eqx.Module):
    """Everything that training needs to go on from here.

    The randomness of step `t` is a function of `key` and `t` only, so a run may be cut into blocks anywhere.
    """

    enn: AbstractENN
    opt_state: PyTree
    step: Int[Array, ""]
    key: PRNGKeyArray
    mask: PyTree[bool]


def _check_mask(mask: PyTree[bool], default: PyTree[bool]) -> None:
    """Raise unless `mask` selects trainable arrays only, and at least one."""
    if jax.tree.structure(mask) != jax.tree.structure(default):
        raise ValueError("`mask` must be a tree of booleans with the structure of `enn`, as `trainable_mask` makes it.")
    allowed = jax.tree.leaves(default)
    chosen = jax.tree.leaves_with_path(mask)
    for (path, selected), possible in zip(chosen, allowed, strict=True):
        if not isinstance(selected, bool):
            raise ValueError(f"`mask` must hold booleans; got {selected!r} at {jax.tree_util.keystr(path)}.")
        if selected and not possible:
            raise ValueError(
                "`mask` must select floating-point arrays outside of `Frozen` parts only; "
                f"got {jax.tree_util.keystr(path)}."
            )
    if not any(selected for _, selected in chosen):
        raise ValueError("`enn` must have something to train; got a mask that selects no array.")


def init_state(
    enn: AbstractENN,
    optimizer: optax.GradientTransformation,
    *,
    mask: PyTree[bool] | None = None,
    key: PRNGKeyArray,
) -> TrainState:
    """Return the state before the first step.

    Args:
        enn: the ENN to train.
        optimizer: any optax optimizer; it sees the trainable part only.
        mask: a tree of booleans with the structure of `enn` that says what is trained; by default
            `trainable_mask(enn)`. Take that and switch parts off with `eqx.tree_at`.
        key: random key of the whole training.
    """
    default = trainable_mask(enn)
    chosen: Any = default if mask is None else mask
    _check_mask(chosen, default)
    opt_state = optimizer.init(eqx.filter(enn, chosen))
    return TrainState(enn, opt_state, jnp.zeros((), dtype=jnp.int32), key, chosen)


def as_state(
    start: AbstractENN | TrainState,
    optimizer: optax.GradientTransformation,
    *,
    mask: PyTree[bool] | None,
    key: PRNGKeyArray,
) -> TrainState:
    """Return the state to start from: `start` itself, or the initial one of an ENN."""
    if isinstance(start, TrainState):
        if mask is not None:
            raise ValueError("`mask` must be left out when training goes on from a `TrainState`, which has its own.")
        return start
    return init_state(start, optimizer, mask=mask, key=key)
