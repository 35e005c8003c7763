"""The state of training at scale."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._tree import trainable_mask
from ._ema import start_ema


class ScaleState(eqx.Module):
    """Everything that training needs to go on from here, beside the position in the data.

    The randomness of step `t` is a function of `key` and `t` only, so a run may be cut anywhere.

    Attributes:
        model: the model; what `trainable_mask` selects of it is trained.
        model_state: running statistics (an `eqx.nn.State`), or None.
        opt_state: state of the optimizer.
        ema: moving averages of trainable parameters and running statistics, or None.
        step: number of steps made.
        key: random key of the whole training.
    """

    model: PyTree
    model_state: PyTree
    opt_state: PyTree
    ema: Any
    step: Int[Array, ""]
    key: PRNGKeyArray

    def averaged(self) -> tuple[PyTree, PyTree]:
        """Return the model and its state with their moving averages; as they are if none are kept."""
        if self.ema is None:
            return self.model, self.model_state
        params, statistics = self.ema
        return eqx.combine(params, self.model), eqx.combine(statistics, self.model_state)


def _own_copy(tree: PyTree) -> PyTree:
    """Return a tree whose arrays no one else has: steps overwrite them."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True) if eqx.is_array(leaf) else leaf, tree)


def init_scale_state(
    model: PyTree,
    optimizer: optax.GradientTransformation,
    *,
    model_state: PyTree = None,
    ema: bool = False,
    key: PRNGKeyArray,
) -> ScaleState:
    """Return the state before the first step.

    Args:
        model: the model to train; switch parts off by `freeze`.
        optimizer: any optax optimizer; it sees the trainable part only.
        model_state: running statistics, as `eqx.nn.make_with_state` returns them beside the model.
        ema: whether moving averages are kept (their decay is an option of the step).
        key: random key of the whole training.
    """
    params = eqx.filter(model, trainable_mask(model))
    if not jax.tree.leaves(params):
        raise ValueError("`model` must have something to train; got no floating-point array outside of `Frozen` parts.")
    average = start_ema(model, model_state) if ema else None
    zero = jnp.zeros((), dtype=jnp.int32)
    return ScaleState(
        _own_copy(model), _own_copy(model_state), _own_copy(optimizer.init(params)), average, zero, _own_copy(key)
    )
