"""Training of many ENNs of one shape in one compiled loop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from .._checks import check_finite, check_positive, num_examples
from .._enn import AbstractENN, num_outputs
from .._keys import named_keys
from ..losses import AbstractLoss, Batch, mean_data_loss
from ._batches import AbstractBatches, UniformBatches
from ._data import as_batch, first
from ._drive import Evaluate, drive, make_schedule
from ._fit import DEFAULT_OPTIMIZER, default_index_samples
from ._result import FitResult
from ._state import TrainState, as_state, init_state
from ._steps import train_loop

_STACKED = eqx.if_array(0)


def _in_axes(axis: int | None) -> Any:
    """Return the `in_axes` of an argument that is stacked (0) or shared (None)."""
    return None if axis is None else _STACKED


@eqx.filter_jit
def _run_blocks(
    states: TrainState,
    data: Batch,
    loss: AbstractLoss,
    data_sizes: Int[Array, " members"] | None,
    optimizer: optax.GradientTransformation,
    batches: AbstractBatches,
    axes: tuple[int | None, int | None],
    num_index_samples: int,
    capacity: int,
    num_steps: Int[Array, ""],
) -> tuple[TrainState, Float[Array, "members steps"]]:
    """Make up to `capacity` steps of every member in one program."""

    def one(
        state: TrainState, data: Batch, loss: AbstractLoss, data_size: Int[Array, ""] | None
    ) -> tuple[TrainState, Float[Array, " steps"]]:
        return train_loop(
            state,
            data,
            loss=loss,
            optimizer=optimizer,
            num_index_samples=num_index_samples,
            batches=batches,
            capacity=capacity,
            num_steps=num_steps,
            data_size=data_size,
        )

    return eqx.filter_vmap(one, in_axes=(_STACKED, _in_axes(axes[0]), _in_axes(axes[1]), _STACKED))(
        states, data, loss, data_sizes
    )


@eqx.filter_jit
def _validate_many(
    enns: AbstractENN,
    loss: AbstractLoss,
    zs: Shaped[Array, "members samples ..."],
    validation: Batch,
    axes: tuple[int | None, int | None],
) -> Float[Array, " members"]:
    """Return the mean data loss of every member."""
    in_axes = (_in_axes(axes[1]), _STACKED, 0, _in_axes(axes[0]))
    return eqx.filter_vmap(mean_data_loss, in_axes=in_axes)(loss, enns, zs, validation)


def _member_keys(key: PRNGKeyArray, members: int, name: str) -> Key[Array, " members"]:
    """Return one key per member, of the stream that has this name."""
    keys = jax.vmap(lambda member: jr.fold_in(key, member))(jnp.arange(members))
    return jax.vmap(lambda k: named_keys(k, name)[0])(keys)


def _as_batches(name: str, data: Any, axis: int | None) -> Batch:
    """Return data, stacked or shared, as a `Batch`."""
    if axis is None or isinstance(data, Batch) or not isinstance(data, tuple):
        return as_batch(name, data)
    return eqx.filter_vmap(lambda x, y: as_batch(name, (x, y)))(*jax.tree.map(jnp.asarray, data))


def _check_many(
    name: str, data: Batch, enns: AbstractENN, loss: AbstractLoss, axes: tuple[int | None, int | None], members: int
) -> None:
    """Raise unless the stacked ENNs can be trained on these examples with this loss."""
    flat = data
    if axes[0] == 0:
        stacked = num_examples(name, data)
        if stacked != members:
            raise ValueError(f"`{name}` must have a leading axis of {members} members; got {stacked}.")
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), data)
    check_finite(f"x of {name}", flat.x)
    one = loss if axes[1] is None else eqx.filter_eval_shape(first, loss)
    # Shapes only: nothing is taken out of the stacks, and nothing compiled.
    outputs = eqx.filter_eval_shape(lambda enns, x: jnp.zeros(num_outputs(first(enns), first(x))), enns, flat.x)
    one.check_targets(flat.y, outputs.shape[0])


def _evaluator(
    validation: Batch, loss: AbstractLoss, zs: Shaped[Array, "members samples ..."], axes: tuple[int | None, int | None]
) -> Evaluate:
    """Return a function that validates stacked ENNs, always at the same indices."""
    return lambda enn: np.asarray(_validate_many(enn, loss, zs, validation, axes))


def fit_many(
    enns: AbstractENN | TrainState,
    data: Batch | tuple[Any, Any],
    loss: AbstractLoss,
    *,
    num_steps: int,
    batch_size: int | None = 100,
    sampling: Callable[[int | None], AbstractBatches] = UniformBatches,
    optimizer: optax.GradientTransformation = DEFAULT_OPTIMIZER,
    num_index_samples: int | None = None,
    mask: PyTree[bool] | None = None,
    validation: Batch | tuple[Any, Any] | None = None,
    eval_every: int | None = None,
    keep_best: bool = False,
    progress: bool = True,
    block_size: int = 100,
    data_axis: int | None = None,
    loss_axis: int | None = None,
    data_sizes: Int[Array, " members"] | None = None,
    key: PRNGKeyArray,
) -> FitResult:
    """Train many ENNs of one shape at once: particles of an ensemble, seeds, values of a swept scalar.

    Member `m` is trained as `fit(enn, ..., key=fold_in(key, m))` would train it alone. Make the members with
    `eqx.filter_vmap`, and a loss that differs between them likewise:
    `eqx.filter_vmap(lambda l2: CrossEntropy(l2=l2))(values)`.

    Args:
        enns: the ENNs as one module, with a leading axis of members on every array; or their state, to go on from.
        data: examples in memory, as in `fit`.
        loss: the loss.
        num_steps: as in `fit`.
        batch_size: as in `fit`.
        sampling: as in `fit`.
        optimizer: as in `fit`.
        num_index_samples: as in `fit`.
        mask: as in `fit`, one for all members.
        validation: as in `fit`; stacked if the data are.
        eval_every: as in `fit`.
        keep_best: as in `fit`, for each member on its own.
        progress: as in `fit`; the loss shown is the mean over members.
        block_size: as in `fit`.
        data_axis: 0 if each member has its own data along a leading axis, None if they share them.
        loss_axis: 0 if the arrays of `loss` have a leading axis of members, None if they share it.
        data_sizes: number of examples of each member, if stacked data have been padded to a common size.
        key: random key.

    Returns:
        The stacked ENNs and states, and the history with a last axis of members.

    Raises:
        NonFiniteLossError: names the members that stopped; its state has all others trained to the end.
        TrainingInterrupted: as in `fit`.
    """
    for name, axis in (("data_axis", data_axis), ("loss_axis", loss_axis)):
        if axis not in (None, 0):
            raise ValueError(f"`{name}` must be None or 0; got {axis}.")
    schedule = make_schedule(num_steps, block_size, eval_every, validation, keep_best)
    members = num_examples("enns", eqx.filter(enns, eqx.is_array))
    if isinstance(enns, TrainState):
        states = as_state(enns, optimizer, mask=mask, key=key)
    else:
        keys = _member_keys(key, members, "train")
        states = eqx.filter_vmap(lambda enn, k: init_state(enn, optimizer, mask=mask, key=k))(enns, keys)
    index = states.enn.index
    samples = default_index_samples(index) if num_index_samples is None else num_index_samples
    check_positive("num_index_samples", samples)
    batches, axes = sampling(batch_size), (data_axis, loss_axis)
    examples = _as_batches("data", data, data_axis)
    _check_many("data", examples, states.enn, loss, axes, members)
    evaluate = None
    if validation is not None:
        held_out = _as_batches("validation", validation, data_axis)
        _check_many("validation", held_out, states.enn, loss, axes, members)
        zs = eqx.filter_vmap(lambda index, k: index.sample_many(samples, key=k))(
            index, _member_keys(key, members, "validation")
        )
        evaluate = _evaluator(held_out, loss, zs, axes)

    def advance(state: TrainState, num_steps: int) -> tuple[TrainState, np.ndarray]:
        count = jnp.asarray(num_steps, dtype=jnp.int32)
        state, losses = _run_blocks(
            state, examples, loss, data_sizes, optimizer, batches, axes, samples, block_size, count
        )
        return state, np.asarray(losses).T[:num_steps]

    return drive(states, advance, evaluate, schedule, keep_best=keep_best, progress=progress)
