"""One training step, and many of them in one compiled loop (Algorithm 1)."""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive, num_examples
from .._keys import named_keys
from .._tree import sum_of_squares
from ..indices import AbstractIndex
from ..losses import Batch
from ._batches import AbstractBatches, Steps
from ._mesh import constrain
from ._objectives import EpistemicObjective, Metrics, Objective, network_as_enn
from ._optimizer import ByContent
from ._state import TrainState, averaged_part, check_decay, update_ema

# What step number `t` of a loop minimizes, and on which examples.
Draw = Callable[[Int[Array, ""]], tuple[Objective, Batch]]


class _Changing(NamedTuple):
    """The arrays that a step changes."""

    params: PyTree
    statistics: PyTree
    opt_state: PyTree
    ema: PyTree
    step: Int[Array, ""]


class _Fixed(NamedTuple):
    """The rest of a state."""

    model: PyTree
    model_state: PyTree
    key: PRNGKeyArray
    mask: PyTree[bool]


def _split(state: TrainState) -> tuple[_Changing, _Fixed]:
    """Return what steps change, and the rest."""
    params, model = eqx.partition(state.model, state.mask)
    statistics, model_state = eqx.partition(state.model_state, eqx.is_array)
    changing = _Changing(params, statistics, state.opt_state, state.ema, state.step)
    return changing, _Fixed(model, model_state, state.key, state.mask)


def _merge(changing: _Changing, fixed: _Fixed) -> TrainState:
    """Return the state of both parts."""
    model = eqx.combine(changing.params, fixed.model)
    model_state = eqx.combine(changing.statistics, fixed.model_state)
    return TrainState(model, model_state, changing.opt_state, changing.ema, changing.step, fixed.key, fixed.mask)


def step_keys(key: PRNGKeyArray, steps: Int[Array, " steps"]) -> Key[Array, " steps"]:
    """Return the keys that objectives get in these steps."""
    # This stream began as that of the index samples of Algorithm 1: another name would change them.
    (step_key,) = named_keys(key, "index")
    return jax.vmap(lambda step: jr.fold_in(step_key, step))(steps)


def step_indices(
    index: AbstractIndex, num_index_samples: int, steps: Int[Array, " steps"], *, key: PRNGKeyArray
) -> Shaped[Array, "steps samples ..."]:
    """Return the index samples of many steps (Algorithm 1, line 3).

    They equal `index.sample_many` with the key of each step, mapped once over all samples of all steps: with an axis of
    a few samples innermost, XLA unrolls the rounds of random numbers for each of them, and takes longer to compile that
    than all the rest of a training loop.
    """
    keys, numbers = step_keys(key, steps), jnp.arange(steps.size * num_index_samples)
    keys = jax.vmap(jr.fold_in)(keys[numbers // num_index_samples], numbers % num_index_samples)
    zs = jax.vmap(lambda key: index.sample(key=key))(keys)
    return zs.reshape(steps.size, num_index_samples, *zs.shape[1:])


def _microbatches(batch: Batch, count: int) -> Batch:
    """Return the batch as a stack of smaller ones, each spread over the devices as the whole batch was."""
    size = num_examples("batch", batch)
    if size % count != 0:
        raise ValueError(f"`microbatches` must divide the batch size, {size}; got {count}.")
    # Neighbors go to different microbatches, so no example changes its device.
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(size // count, count, *leaf.shape[1:]), 1, 0), batch)


def _gradient(
    changing: _Changing, fixed: _Fixed, batch: Batch, objective: Objective, key: PRNGKeyArray, microbatches: int
) -> tuple[Float[Array, ""], PyTree, PyTree, Metrics]:
    """Return the loss, its gradient, the new statistics, and metrics."""

    def value(params: PyTree, statistics: PyTree, batch: Batch, key: PRNGKeyArray) -> tuple[Any, Any]:
        model, model_state = eqx.combine(params, fixed.model), eqx.combine(statistics, fixed.model_state)
        loss, (new, metrics) = objective(model, model_state, batch, key=key)
        return loss, (eqx.filter(new, eqx.is_array), metrics)

    differentiate = ft.partial(jax.value_and_grad(value, has_aux=True), changing.params)
    if microbatches == 1:
        (loss, (statistics, metrics)), gradient = differentiate(changing.statistics, batch, key)
        return loss, gradient, statistics, metrics

    def body(carry: tuple[PyTree, PyTree], part: Batch) -> tuple[tuple[PyTree, PyTree], Any]:
        total, statistics = carry
        # All microbatches share the randomness of their step, as in the whole batch.
        (loss, (statistics, metrics)), gradient = differentiate(statistics, part, jr.clone(key))
        return (jax.tree.map(jnp.add, total, gradient), statistics), (loss, metrics)

    zeros = jax.tree.map(jnp.zeros_like, changing.params)
    start = (zeros, changing.statistics)
    (total, statistics), (losses, metrics) = jax.lax.scan(body, start, _microbatches(batch, microbatches))
    gradient = jax.tree.map(lambda leaf: leaf / microbatches, total)
    return jnp.mean(losses), gradient, statistics, jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), metrics)


def _update(
    changing: _Changing,
    fixed: _Fixed,
    batch: Batch,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    key: PRNGKeyArray,
    ok: Bool[Array, ""],
    microbatches: int = 1,
    ema_decay: float | None = None,
) -> tuple[_Changing, Metrics, Bool[Array, ""]]:
    """Make one step, unless an earlier one was not `ok` or this one meets something that is not finite."""
    params = changing.params
    loss, gradient, statistics, metrics = _gradient(changing, fixed, batch, objective, key, microbatches)

    def value_of(params: PyTree) -> Float[Array, ""]:
        model, model_state = eqx.combine(params, fixed.model), eqx.combine(changing.statistics, fixed.model_state)
        return objective(model, model_state, batch, key=jr.clone(key))[0]

    # Line searches and plateau schedules want the value and the objective; other optimizers ignore them.
    extended: Any = optax.with_extra_args_support(optimizer)
    # Optax mixes types, such as a float to the power of the step, which strict promotion would forbid.
    with jax.numpy_dtype_promotion("standard"):
        updates, opt_state = extended.update(
            gradient, changing.opt_state, params, value=loss, grad=gradient, value_fn=value_of
        )
    params = eqx.apply_updates(params, updates)
    squares = sum_of_squares(gradient)
    # The squares are those of the optimizer's moments: they overflow before the gradient does.
    finite = jnp.isfinite(loss + squares) & jnp.isfinite(sum_of_squares(params))
    ema = changing.ema
    if ema_decay is not None:
        ema = update_ema(ema, averaged_part(params, statistics), ema_decay, changing.step)
    new = _Changing(params, statistics, opt_state, ema, changing.step + 1)
    ok = ok & finite
    new = jax.tree.map(lambda after, before: jnp.where(ok, after, before), new, changing)
    return new, {"loss": loss, "gradient_norm": jnp.sqrt(squares), **metrics}, ok


def train_step(
    state: TrainState,
    batch: Batch,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    microbatches: int = 1,
    ema_decay: float | None = None,
    ok: Bool[Array, ""] | bool = True,
) -> tuple[TrainState, Metrics]:
    """Make one step: a pure function of the state and the batch, to be compiled by the caller.

    If the loss, its gradient or the new parameters are not finite, the state comes back unchanged, `step` included.

    Args:
        state: the state of training.
        batch: examples of this step.
        objective: an `AbstractObjective`, or any function `(model, model_state, batch, *, key) -> (loss,
            (model_state, metrics))` whose loss is a mean over the batch.
        optimizer: the optimizer that the state was made with.
        microbatches: number of microbatches that the batch is split into, one after the other, to save memory.
            Running statistics are updated by each of them.
        ema_decay: decay of the moving averages; required if and only if the state has them.
        ok: whether to make the step at all; pass on the `ok` of the metrics to stop at the first failure.

    Returns:
        The new state, and scalar metrics: `loss`, `gradient_norm`, those of the objective, and `ok`.
    """
    check_positive("microbatches", microbatches)
    check_decay(ema_decay)
    if (state.ema is None) != (ema_decay is None):
        found = "no averages" if state.ema is None else "averages"
        raise ValueError(f"`ema_decay` must be given exactly if `state` has averages; got {ema_decay}, {found}.")
    changing, fixed = _split(state)
    key = step_keys(state.key, state.step[None])[0]
    options = {"key": key, "ok": jnp.asarray(ok), "microbatches": microbatches, "ema_decay": ema_decay}
    changing, metrics, ok = _update(changing, fixed, batch, objective, optimizer, **options)
    return _merge(changing, fixed), {**metrics, "ok": ok}


# The first argument is the one that is kept.
@ft.partial(eqx.filter_jit, donate="all-except-first")
def _donating_step(kept: tuple[Any, ...], state: TrainState) -> tuple[TrainState, Metrics]:
    return _placed_step(kept, state)


@eqx.filter_jit
def _keeping_step(kept: tuple[Any, ...], state: TrainState) -> tuple[TrainState, Metrics]:
    return _placed_step(kept, state)


def _placed_step(kept: tuple[Any, ...], state: TrainState) -> tuple[TrainState, Metrics]:
    """Make one step, and place its result as the state was."""
    batch, ok, objective, optimizer, mesh, shard_parameters, options = kept
    new, metrics = train_step(state, batch, objective, optimizer.value, ok=ok, **dict(options))
    place = ft.partial(constrain, mesh=mesh)
    arrays, rest = eqx.partition(new, eqx.is_array)
    key = place(new.key, shard_parameters=False)
    arrays = eqx.tree_at(lambda state: state.key, place(arrays, shard_parameters=shard_parameters), key)
    return eqx.combine(arrays, rest), place(metrics, shard_parameters=False)


def make_train_step(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    *,
    mesh: Mesh | None = None,
    shard_parameters: bool = False,
    microbatches: int = 1,
    ema_decay: float | None = None,
    donate: bool = False,
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Return the compiled `train_step` as a function `(state, batch, ok=True) -> (state, metrics)`.

    The result is the mean over the global batch, for any number of devices and processes. Calls with equal
    objectives, optimizers and options share one compiled program.

    Args:
        objective: as in `train_step`.
        optimizer: as in `train_step`.
        mesh: the mesh that the state is on; None for one device.
        shard_parameters: how the state was placed there, see `place`.
        microbatches: as in `train_step`.
        ema_decay: as in `train_step`.
        donate: whether the new state takes the memory of the old one, which cannot be used afterwards.
    """
    check_positive("microbatches", microbatches)
    check_decay(ema_decay)
    compiled = _donating_step if donate else _keeping_step
    options = (("microbatches", microbatches), ("ema_decay", ema_decay))
    rest = (objective, ByContent(optimizer), mesh, shard_parameters, options)
    return lambda state, batch, ok=True: compiled((batch, jnp.asarray(ok), *rest), state)


def loop_steps(
    state: TrainState,
    draw: Draw,
    optimizer: optax.GradientTransformation,
    *,
    num_steps: int | Int[Array, ""],
    capacity: int | None = None,
    ok: Bool[Array, ""] | bool = True,
) -> tuple[TrainState, Float[Array, " steps"], Bool[Array, ""]]:
    """Make many steps in one loop on the device; stop changing the state at the first that is not finite.

    A pure function. Frozen parts of the model stay outside of the loop.

    Args:
        state: the state of training, without moving averages.
        draw: returns the objective and the batch of step number `t`, counted from zero. The objective must bring its
            own randomness, as `EpistemicObjective.at` does: the key that it gets is the same at each step.
        optimizer: the optimizer that the state was made with.
        num_steps: number of steps, which may be traced.
        capacity: number of losses that are kept, if `num_steps` is traced; later entries are NaN.
        ok: whether to make the steps at all.

    Returns:
        The new state, the loss before each step (NaN after a failure), and whether all steps were finite.
    """
    changing, fixed = _split(state)
    length = num_steps if capacity is None else capacity

    def body(t: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        changing, losses, ok = carry
        objective, batch = draw(t)
        new, metrics, new_ok = _update(changing, fixed, batch, objective, optimizer, key=jr.clone(state.key), ok=ok)
        return new, losses.at[t].set(jnp.where(ok, metrics["loss"], jnp.nan)), new_ok

    start: Any = (changing, jnp.full(length, jnp.nan), jnp.asarray(ok))
    changing, losses, all_ok = jax.lax.fori_loop(0, num_steps, body, start)
    return _merge(changing, fixed), losses, all_ok


Draws = tuple[Shaped[Array, "steps samples ..."], Int[Array, "steps batch"] | None]


def draw_steps(
    index: AbstractIndex,
    start: Int[Array, ""],
    data_size: Int[Array, ""] | None,
    *,
    key: PRNGKeyArray,
    num_examples: int,
    num_index_samples: int,
    batches: AbstractBatches,
    num_steps: int,
) -> Draws:
    """Return all random numbers of a block of steps: the indices, and the positions of the examples.

    Drawn at once, since small random kernels inside the loop would cost more than the steps themselves.
    """
    steps = start + jnp.arange(num_steps, dtype=start.dtype)
    zs = step_indices(index, num_index_samples, steps, key=key)
    return zs, batches.ids(Steps(num_examples, data_size, start, num_steps), key=key)


def _take(ids: Int[Array, " batch"], leaf: Shaped[Array, "examples ..."]) -> Shaped[Array, "batch ..."]:
    """Return some entries of an array."""
    return leaf[ids]


def train_drawn(
    state: TrainState,
    data: Batch,
    draws: Draws,
    objective: EpistemicObjective,
    optimizer: optax.GradientTransformation,
    num_steps: int | Int[Array, ""],
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Make up to as many steps as have been drawn; the losses of those that are not made are NaN."""
    zs, ids = draws

    def draw(t: Int[Array, ""]) -> tuple[Objective, Batch]:
        batch = data if ids is None else jax.tree.map(ft.partial(_take, ids[t]), data)
        return objective.at(zs[t]), batch

    state, losses, _ = loop_steps(state, draw, optimizer, num_steps=num_steps, capacity=zs.shape[0])
    return state, losses


def train_steps(
    state: TrainState,
    data: Batch,
    objective: EpistemicObjective,
    optimizer: optax.GradientTransformation,
    *,
    batches: AbstractBatches,
    num_steps: int,
    data_size: Int[Array, ""] | None = None,
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Make many steps of Algorithm 1 on data in memory, as one loop on the device.

    A pure function: compile it with `eqx.filter_jit`, map it over states, data and objectives with `eqx.filter_vmap`.
    The result does not depend on how a run is cut into blocks. Where a step meets something that is not finite, the
    loop keeps the state before it, `state.step` stays there, and later losses are NaN.

    Args:
        state: the state of training.
        data: all examples.
        objective: the objective of Algorithm 1.
        optimizer: the optimizer that the state was made with.
        batches: how the examples of a step are drawn.
        num_steps: number of steps; the positions of all their examples and all their indices are in memory at once.
        data_size: number of examples to draw from, if `data` has been padded to a common size; may be traced.

    Returns:
        The new state, and the loss before each step.
    """
    check_positive("num_steps", num_steps)
    index = network_as_enn(state.model).index
    draws = draw_steps(
        index,
        state.step,
        data_size,
        key=state.key,
        num_examples=num_examples("data", data),
        num_index_samples=objective.num_samples(index),
        batches=batches,
        num_steps=num_steps,
    )
    return train_drawn(state, data, draws, objective, optimizer, num_steps)
