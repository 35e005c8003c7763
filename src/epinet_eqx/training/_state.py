"""The state of training, and its moving averages."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._checks import any_traced
from .._tree import trainable_mask
from ._optimizer import ByContent


class TrainState(eqx.Module):
    """Everything needed to continue training, except the position in the data.

    The randomness of step `t` is a function of `key` and `t` only, so a run may be cut into pieces anywhere.

    Attributes:
        model: an ENN, a network, or any tree that the objective understands.
        model_state: running statistics (an `eqx.nn.State`), or None.
        opt_state: state of the optimizer.
        ema: moving averages of the trained parameters and the running statistics, or None.
        step: number of steps made.
        key: random key of the whole training.
        mask: tree of booleans that selects the trained arrays of `model`.
    """

    model: PyTree
    model_state: PyTree
    opt_state: PyTree
    ema: Any
    step: Int[Array, ""]
    key: PRNGKeyArray
    mask: PyTree[bool]

    def averaged(self) -> tuple[PyTree, PyTree]:
        """Return the model and its state with moving averages in place of the values, if there are any."""
        if self.ema is None:
            return self.model, self.model_state
        params, statistics = self.ema
        return eqx.combine(params, self.model), eqx.combine(statistics, self.model_state)


def _check_mask(mask: PyTree[bool], default: PyTree[bool]) -> None:
    """Raise unless `mask` selects trainable arrays only, and at least one."""
    if jax.tree.structure(mask) != jax.tree.structure(default):
        raise ValueError(
            "`mask` must be a tree of booleans with the structure of `model`, as `trainable_mask` makes it."
        )
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
        raise ValueError("`model` must have something to train; got a mask that selects no array.")


# One program; array by array, each shape would be compiled on its own.
@eqx.filter_jit
def _init_optimizer(params: PyTree, optimizer: ByContent) -> PyTree:
    """Return the optimizer's state before the first step."""
    return optimizer.value.init(params)


def check_optimizer(optimizer: Any) -> None:
    """Raise unless `optimizer` has the two functions of an optimizer."""
    if isinstance(optimizer, type) or not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ValueError(f"`optimizer` must be one of optax, such as `optax.adam(1e-3)`; got {optimizer!r}.")


def init_state(
    model: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    model_state: PyTree = None,
    ema: bool = False,
    mask: PyTree[bool] | None = None,
    key: PRNGKeyArray,
) -> TrainState:
    """Return the state before the first step.

    Args:
        model: the model to train.
        optimizer: any optax optimizer; it sees the trained arrays only.
        model_state: running statistics, as `eqx.nn.make_with_state` returns them beside the model.
        ema: whether to keep moving averages (`train` sets their decay).
        mask: tree of booleans with the structure of `model` that selects the trained arrays; by default
            `trainable_mask(model)`. Start from that and switch parts off with `eqx.tree_at`.
        key: random key of the whole training.
    """
    check_optimizer(optimizer)
    default = trainable_mask(model)
    chosen: Any = default if mask is None else mask
    _check_mask(chosen, default)
    params = eqx.filter(model, chosen)
    opt_state = optimizer.init(params) if any_traced(params) else _init_optimizer(params, ByContent(optimizer))
    average = averaged_part(params, model_state) if ema else None
    return TrainState(model, model_state, opt_state, average, jnp.zeros((), dtype=jnp.int32), key, chosen)


def as_state(
    start: PyTree | TrainState, optimizer: optax.GradientTransformation, *, mask: PyTree[bool] | None, key: PRNGKeyArray
) -> TrainState:
    """Return the state to start from: `start` itself, or the initial state of a model."""
    if isinstance(start, TrainState):
        if mask is not None:
            raise ValueError("`mask` must be left out when training continues from a `TrainState`, which has its own.")
        return start
    return init_state(start, optimizer, mask=mask, key=key)


def averaged_part(params: PyTree, model_state: PyTree) -> tuple[PyTree, PyTree]:
    """Return the averaged part: the trained parameters, and the floating-point arrays of the model state."""
    return params, eqx.filter(model_state, eqx.is_inexact_array)


def update_ema(ema: Any, new: Any, decay: float, step: Int[Array, ""]) -> Any:
    """Return the moving averages after a step, with warm-up of the decay.

    The decay is `(1 + t) / (10 + t)` until that reaches `decay`, so early averages reach back a tenth of the run.
    """
    t = step.astype(jnp.float32)
    weight: Float[Array, ""] = jnp.minimum(decay, (1 + t) / (10 + t))
    return jax.tree.map(lambda old, new: old + (1 - weight).astype(old.dtype) * (new - old), ema, new)


def check_decay(decay: float | None) -> None:
    """Raise unless `decay` is in [0, 1), or None."""
    is_number = isinstance(decay, int | float | np.number) and not isinstance(decay, bool)
    if decay is not None and not (is_number and 0 <= decay < 1):
        raise ValueError(f"`ema_decay` must be at least 0 and less than 1, or None; got {decay!r}.")
