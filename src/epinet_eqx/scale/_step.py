"""One step of training at scale, as one compiled program over a mesh."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_positive, num_examples
from .._keys import named_keys
from .._tree import sum_of_squares, trainable_mask
from ..losses import Batch
from ._ema import check_decay, ema_decay_at, update_ema
from ._mesh import constrain
from ._objectives import Metrics
from ._state import ScaleState

Objective = Callable[..., tuple[Float[Array, ""], tuple[PyTree, Metrics]]]
TrainStep = Callable[[ScaleState, Batch], tuple[ScaleState, Metrics]]


def _split(batch: Batch, parts: int) -> Batch:
    """Return the batch as a stack of smaller ones, each of them spread over the devices as the whole batch was."""
    size = num_examples("batch", batch)
    if size % parts != 0:
        raise ValueError(f"`accumulate` must divide the batch size, {size}; got {parts}.")
    # Neighbors go to different parts, so no example changes its device.
    return jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf.reshape(size // parts, parts, *leaf.shape[1:]), 1, 0),
        batch,
    )


def _gradient(
    objective: Objective, model: PyTree, statistics: PyTree, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], PyTree, PyTree, Metrics]:
    """Return the loss, its gradient for the trainable part, the arrays of the new model state, and metrics.

    Args:
        objective: the objective.
        model: the model.
        statistics: arrays and the rest of the model state.
        batch: the examples.
        key: random key of the step.
    """
    params, rest = eqx.partition(model, trainable_mask(model))

    def value(params: PyTree) -> tuple[Float[Array, ""], tuple[PyTree, Metrics]]:
        loss, (new, metrics) = objective(eqx.combine(params, rest), eqx.combine(*statistics), batch, key=key)
        return loss, (eqx.filter(new, eqx.is_array), metrics)

    (loss, (new, metrics)), gradient = jax.value_and_grad(value, has_aux=True)(params)
    return loss, gradient, new, metrics


def _accumulate(
    objective: Objective, model: PyTree, statistics: tuple[PyTree, PyTree], batch: Batch, parts: int, key: PRNGKeyArray
) -> tuple[Float[Array, ""], PyTree, PyTree, Metrics]:
    """Return the same as `_gradient`, from one part of the batch after the other."""
    if parts == 1:
        return _gradient(objective, model, statistics, batch, key)
    arrays, rest = statistics
    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(model, trainable_mask(model)))

    def body(carry: tuple[PyTree, PyTree], part: Batch) -> tuple[tuple[PyTree, PyTree], Any]:
        total, arrays = carry
        # All parts have the randomness of their step, as the whole batch would.
        loss, gradient, arrays, metrics = _gradient(objective, model, (arrays, rest), part, jr.clone(key))
        return (jax.tree.map(jnp.add, total, gradient), arrays), (loss, metrics)

    (total, arrays), (losses, metrics) = jax.lax.scan(body, (zeros, arrays), _split(batch, parts))
    gradient = jax.tree.map(lambda leaf: leaf / parts, total)
    return jnp.mean(losses), gradient, arrays, jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), metrics)


def make_train_step(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    mesh: Mesh | None = None,
    shard_parameters: bool = False,
    accumulate: int = 1,
    ema_decay: float | None = None,
    donate: bool = True,
) -> TrainStep:
    """Return a compiled function `(state, batch) -> (state, metrics)` that makes one step.

    Metrics are scalars on the device: `loss`, `gradient_norm`, those of the objective, and `finite`. If the loss, its
    gradient or the new parameters are not finite, the state comes back as it was, `state.step` tells, and `finite` is
    false. The result is the mean over the global batch whatever the number of devices and processes.

    Args:
        objective: an `AbstractObjective`, or any function `(model, model_state, batch, *, key) -> (loss,
            (model_state, metrics))` whose loss is a mean over the batch.
        optimizer: the optimizer that the state was made with.
        mesh: the mesh that the state is on; None for one device.
        shard_parameters: how it was placed there, see `place`.
        accumulate: number of parts that the batch goes through in, one after the other, to save memory. Running
            statistics are updated by each part.
        ema_decay: decay of the moving averages; needed if and only if the state has them.
        donate: whether the memory of the old state is used for the new one; the old one cannot be used then.
    """
    check_positive("accumulate", accumulate)
    check_decay(ema_decay)

    def step(batch: Batch, state: ScaleState) -> tuple[ScaleState, Metrics]:
        if (state.ema is None) != (ema_decay is None):
            found = "no averages" if state.ema is None else "averages"
            raise ValueError(f"`ema_decay` must be given exactly if `state` has averages; got {ema_decay}, {found}.")
        statistics = eqx.partition(state.model_state, eqx.is_array)
        (step_key,) = named_keys(state.key, "step")
        key = jr.fold_in(step_key, state.step)
        loss, gradient, arrays, metrics = _accumulate(objective, state.model, statistics, batch, accumulate, key)
        params, rest = eqx.partition(state.model, trainable_mask(state.model))
        extended: Any = optax.with_extra_args_support(optimizer)
        # Optax mixes types: it must work where a program forbids that elsewhere.
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = extended.update(gradient, state.opt_state, params, value=loss, grad=gradient)
        params = eqx.apply_updates(params, updates)
        squares = sum_of_squares(gradient)
        finite = jnp.isfinite(loss + squares) & jnp.isfinite(sum_of_squares(params))
        model, model_state = eqx.combine(params, rest), eqx.combine(arrays, statistics[1])
        ema = state.ema
        if ema_decay is not None:
            ema = update_ema(ema, model, model_state, ema_decay_at(ema_decay, state.step))
        old = eqx.filter((state.model, statistics[0], state.opt_state, state.ema, state.step), eqx.is_array)
        new = eqx.filter((model, arrays, opt_state, ema, state.step + 1), eqx.is_array)
        new = jax.tree.map(lambda after, before: jnp.where(finite, after, before), new, old)
        new = constrain(new, mesh, shard_parameters=shard_parameters)
        chosen = ScaleState(*new, key=constrain(state.key, mesh, shard_parameters=False))
        metrics = {"loss": loss, "gradient_norm": jnp.sqrt(squares), **metrics, "finite": finite}
        return _with_static_parts(chosen, state), constrain(metrics, mesh, shard_parameters=False)

    # The first argument is the one that is kept.
    compiled = eqx.filter_jit(step, donate="all-except-first" if donate else "none")
    return lambda state, batch: compiled(batch, state)


def _with_static_parts(arrays: ScaleState, like: ScaleState) -> ScaleState:
    """Return a state with the arrays of one and all else of another."""
    return eqx.combine(arrays, eqx.filter(like, eqx.is_array, inverse=True))
