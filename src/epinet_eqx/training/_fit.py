"""Training of one model: `fit` by Algorithm 1, and `train` by any objective on streams, devices and processes."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import check_function, check_key, check_positive, num_examples
from .._files import StrPath
from .._keys import named_keys
from .._xla import jit_for_one_run
from ..data import Loader
from ..indices import AbstractIndex
from ..losses import AbstractLoss, Batch, mean_data_loss
from ._batches import AbstractBatches, UniformBatches
from ._callbacks import Callback, check_callbacks
from ._checkpoints import Checkpoints
from ._driver import Advance, Block, Saving, Schedule, drive
from ._evaluate import make_evaluation
from ._mesh import as_parts, global_batch, place
from ._objectives import AbstractObjective, EpistemicObjective, network_as_enn
from ._optimizer import ByContent
from ._processes import StopRequest, report_lost_process
from ._result import FitResult
from ._state import TrainState, as_state, check_optimizer
from ._step import Draws, draw_steps, make_train_step, train_drawn
from ._streams import DataIterator, MemoryIterator, as_batch, as_stream, check_data, padded

DEFAULT_OPTIMIZER = optax.adam(1e-3)

# Steps that the host may be ahead of the devices: enough to keep them busy, few enough to see a failure soon.
_STEPS_AHEAD = 2


def check_intervals(
    num_steps: int | None, eval_every: int | None, validation: Any, keep_best: bool, patience: int | None = None
) -> int | None:
    """Return the steps between validations; raise if they are requested without data."""
    if validation is None:
        for name, value in (("eval_every", eval_every), ("keep_best", keep_best), ("patience", patience)):
            if value:
                raise ValueError(f"`{name}` must be left out without `validation`; got {value}.")
    elif eval_every is None and num_steps is not None:
        return max(num_steps // 10, 1)
    return eval_every


@jit_for_one_run
def _draw(
    index: AbstractIndex,
    start: Int[Array, ""],
    data_size: Int[Array, ""] | None,
    key: PRNGKeyArray,
    options: tuple[Any, ...],
) -> Draws:
    """Draw the indices and examples of a block of steps."""
    return draw_steps(index, start, data_size, key=key, **dict(options))


@eqx.filter_jit
def _run_block(
    state: TrainState,
    data: Batch,
    draws: Draws,
    objective: EpistemicObjective,
    optimizer: ByContent,
    num_steps: Int[Array, ""],
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Make up to as many steps as have been drawn, in one program for any number of them."""
    return train_drawn(state, data, draws, objective, optimizer.value, num_steps)


@eqx.filter_jit
def _validate(
    model: PyTree, loss: AbstractLoss, zs: Shaped[Array, "samples ..."], validation: Batch
) -> Float[Array, ""]:
    """Return the mean data loss."""
    return mean_data_loss(loss, network_as_enn(model), zs, validation)


def _in_memory(
    data: Batch,
    objective: EpistemicObjective,
    optimizer: optax.GradientTransformation,
    batches: AbstractBatches,
    block_size: int,
    capacity: int | None,
) -> Advance:
    """Return the function that runs blocks of steps on data in memory, one program per block."""
    data, data_size = padded(data, capacity)
    shared = ByContent(optimizer)

    def advance(state: TrainState, count: int, request: StopRequest) -> Block:
        index = network_as_enn(state.model).index
        options = (
            ("num_examples", num_examples("data", data)),
            ("num_index_samples", objective.num_samples(index)),
            ("batches", batches),
            ("num_steps", block_size),
        )
        draws = _draw(index, state.step, data_size, state.key, options)
        state, losses = _run_block(state, data, draws, objective, shared, jnp.asarray(count, dtype=jnp.int32))
        size = num_examples("data", data) if batches.batch_size is None else batches.batch_size
        return Block(state, {"loss": np.asarray(losses)[:count]}, count * size, False)

    return advance


def _from_stream(
    stream: Iterator[Any] | DataIterator,
    step: Callable[..., Any],
    mesh: Mesh | None,
    check: Callable[[Batch], None] | None,
) -> Advance:
    """Return the function that runs steps on streamed batches, the first of which is checked."""

    def next_batch() -> Batch:
        nonlocal check
        local = next(stream)
        batch = Batch(**as_parts(local)) if mesh is None else global_batch(local, mesh)
        if check is not None:
            check(batch)
            check = None
        return batch

    def advance(state: TrainState, count: int, request: StopRequest) -> Block:
        found: list[dict[str, Array]] = []
        seen, ended, ok = 0, False, True
        while len(found) < count and not request.is_urgent:
            try:
                batch = next_batch()
            except StopIteration:
                ended = True
                break
            except KeyboardInterrupt:
                request.note_interrupt()
                break
            state, metrics = step(state, batch, ok)
            ok = metrics.pop("ok")
            found.append(metrics)
            seen += num_examples("batch", batch)
            if len(found) > _STEPS_AHEAD and not np.isfinite(found[-1 - _STEPS_AHEAD]["loss"]):
                break
        names = found[0] if found else ("loss",)
        return Block(state, {name: np.array([m[name] for m in found]) for name in names}, seen, ended)

    return advance


def _own_copy(tree: PyTree) -> PyTree:
    """Return a tree with unshared arrays, since steps donate their memory."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True) if eqx.is_array(leaf) else leaf, tree)


def _train_on_stream(
    state: TrainState,
    stream: Iterator[Any] | DataIterator,
    step: Callable[..., Any],
    schedule: Schedule,
    *,
    mesh: Mesh | None,
    shard_parameters: bool = False,
    check: Callable[[Batch], None] | None = None,
    checkpoints: Checkpoints | None,
    allow_changes: bool = False,
    **driving: Any,
) -> FitResult:
    """Train on a stream of batches, from the latest checkpoint on if there is one."""
    if schedule.checkpoint_every is not None and checkpoints is None:
        raise ValueError(f"`checkpoint_every` must be left out without `checkpoints`; got {schedule.checkpoint_every}.")
    if mesh is None and jax.process_count() > 1:
        raise ValueError("`mesh` must be given, such as `data_mesh()`, if several processes train one model; got None.")
    start, saving, advice = np.asarray(state.step), None, "Start all of them again."
    state = _own_copy(state)
    if mesh is not None:
        state = place(state, mesh, shard_parameters=shard_parameters)
    if checkpoints is not None:
        if not isinstance(stream, DataIterator):
            found = type(stream).__name__
            raise ValueError(f"`data` must have `get_state` and `set_state` for checkpoints; got {found}.")
        saving = Saving(checkpoints=checkpoints, data=stream)
        advice += f" Training then continues from the latest checkpoint in {str(checkpoints.folder)!r}."
    with report_lost_process(advice):
        if saving is not None:
            state = saving.checkpoints.resume(state, saving.data, allow_changes=allow_changes)
        advance = _from_stream(stream, step, mesh, check)
        return drive(state, advance, schedule, saving=saving, start=start, **driving)


def fit(
    model: PyTree | TrainState,
    data: Batch | tuple[Any, Any] | Loader | Iterable[Batch],
    loss: AbstractLoss,
    *,
    num_steps: int | None,
    batch_size: int | None = 100,
    sampling: Callable[[int | None], AbstractBatches] = UniformBatches,
    optimizer: optax.GradientTransformation = DEFAULT_OPTIMIZER,
    num_index_samples: int | None = None,
    mask: PyTree[bool] | None = None,
    validation: Batch | tuple[Any, Any] | None = None,
    eval_every: int | None = None,
    keep_best: bool = False,
    patience: int | None = None,
    capacity: int | None = None,
    progress: bool = True,
    block_size: int = 100,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | StrPath | None = None,
    checkpoint_every: int | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    log_every: int = 10,
    key: PRNGKeyArray,
) -> FitResult:
    """Train an ENN or a network by Algorithm 1.

    SIGTERM and Ctrl-C stop after the current step (the current block, for data in memory); a checkpoint is written if
    `checkpoints` is given. Run again, training continues from the latest checkpoint.

    Args:
        model: an ENN; a network, which is trained as the ENN that ignores its index; or the state of a training to
            continue, whose key and mask stay in force.
        data: a data set in memory, as a `Batch` or a pair `(x, y)`; a `Loader`; or any iterable of batches.
        loss: the loss.
        num_steps: number of steps, counted from the model or state given; None for one per batch of an iterable.
        batch_size: examples per step for data in memory; None for all of them.
        sampling: how a batch is drawn from data in memory: `UniformBatches` (as in Algorithm 1) or `EpochBatches`.
        optimizer: any optax optimizer; Adam at 1e-3 by default.
        num_index_samples: index samples per step; by default the size of the index, at most the testbed's 8.
        mask: the trained leaves, `trainable_mask(model)` by default; see `init_state`.
        validation: held-out examples; their mean loss at fixed indices, without penalty and bootstrap, goes into the
            history.
        eval_every: steps between validations, a tenth of all by default; the last step is always followed by one.
        keep_best: whether to return the model with the smallest validation loss.
        patience: stop after this many validations without a new smallest loss; not with `checkpoints`.
        capacity: length to which data in memory are padded. Fits on data that grow up to it share their compiled
            programs, and train as without it.
        progress: whether to show a progress bar.
        block_size: steps per compiled program, for data in memory; progress and interrupts wait for it.
        mesh: devices to train on, see `data_mesh`; by default the first one.
        checkpoints: a folder of checkpoints, or `Checkpoints` with options; None for none.
        checkpoint_every: steps between checkpoints; one is also written after validations and after the last step.
        callbacks: where metrics go: callbacks such as `CsvMetrics(path)`, or functions of the step and the metrics.
        log_every: steps between metrics passed to callbacks.
        key: random key.

    Returns:
        The trained model, the state after the last step, and the history.

    Raises:
        NonFiniteLossError: the loss, its gradient or the parameters were not finite; has the last finite state.
        DataExhaustedError: an iterable ended before `num_steps`; has the state after its last batch.
        TrainingInterrupted: SIGTERM or Ctrl-C; a `KeyboardInterrupt` that has the state.
        CheckpointError: a checkpoint could not be written or read; earlier ones are intact.
    """
    check_key("key", key)
    check_positive("log_every", log_every)
    check_positive("block_size", block_size)
    if capacity is not None:
        check_positive("capacity", capacity)
    check_function("sampling", sampling)
    train_key, validation_key = named_keys(key, "train", "validation")
    stream, callbacks = as_stream(data), check_callbacks(callbacks)
    if isinstance(checkpoints, str | os.PathLike):
        checkpoints = Checkpoints(checkpoints)
    if patience is not None and checkpoints is not None:
        raise ValueError(f"`patience` must be left out with `checkpoints`, which do not hold it; got {patience}.")
    in_blocks = stream is None and mesh is None and checkpoints is None
    schedule = Schedule(
        num_steps=num_steps,
        block_size=block_size if in_blocks else min(block_size, log_every),
        eval_every=check_intervals(num_steps, eval_every, validation, keep_best, patience),
        checkpoint_every=checkpoint_every,
        log_every=log_every if callbacks else None,
        patience=patience,
    )
    if capacity is not None and (not in_blocks or batch_size is None):
        raise ValueError(
            "`capacity` must be left out unless data in memory are drawn in batches, without `mesh` and `checkpoints`; "
            f"got {capacity}."
        )
    state = as_state(model, optimizer, mask=mask, key=train_key)
    objective = EpistemicObjective(loss, num_index_samples=num_index_samples, mask=state.mask)
    index = network_as_enn(state.model).index
    driving: dict[str, Any] = {"keep_best": keep_best, "callbacks": callbacks, "progress": progress}
    if validation is not None:
        held_out = as_batch("validation", validation)
        check_data("validation", held_out, state.model, loss)
        zs = index.sample_many(objective.num_samples(index), key=validation_key)
        driving["evaluate"] = lambda model, _: {"loss": np.asarray(_validate(model, loss, zs, held_out))}
    check = lambda batch: check_data("data", batch, state.model, loss)  # noqa: E731
    if stream is None:
        if num_steps is None:
            raise ValueError("`num_steps` must be given for data in memory; got None.")
        in_memory = as_batch("data", data)
        check(in_memory)
        check, batches = None, sampling(batch_size)
        if in_blocks:
            advance = _in_memory(in_memory, objective, optimizer, batches, block_size, capacity)
            return drive(state, advance, schedule, **driving)
        stream = MemoryIterator(in_memory, batches, key=state.key)
        stream.set_state({"step": int(state.step)})
    step = make_train_step(objective, optimizer, mesh=mesh, donate=True)
    return _train_on_stream(state, stream, step, schedule, mesh=mesh, checkpoints=checkpoints, check=check, **driving)


def train(
    state: TrainState,
    data: DataIterator | Loader | Iterable[Any],
    objective: AbstractObjective,
    *,
    optimizer: optax.GradientTransformation,
    num_steps: int | None,
    mesh: Mesh | None = None,
    shard_parameters: bool = False,
    microbatches: int = 1,
    ema_decay: float | None = None,
    validation: Callable[[], Iterable[Any]] | None = None,
    eval_every: int | None = None,
    checkpoints: Checkpoints | None = None,
    checkpoint_every: int | None = None,
    allow_changes: bool = False,
    callbacks: Callback | Sequence[Callback] = (),
    log_every: int = 10,
    progress: bool = True,
) -> FitResult:
    """Train any model by any objective, on one device or a mesh; resume from the latest checkpoint if there is one.

    All processes of a run call it, each with its part of the data. SIGTERM and Ctrl-C stop after the current step; a
    checkpoint is written if `checkpoints` is given. A resumed run ends as if it had not been stopped.

    Args:
        state: the state before the first step, see `init_state`.
        data: the stream of batches: a `Loader`, an iterator of Grain, a `MemoryIterator`; without checkpoints, any
            iterable.
        objective: the loss to minimize; its `evaluate` gives the validation metrics.
        optimizer: the optimizer that the state was made with.
        num_steps: number of steps, counted from `state`; None for one per batch of the data.
        mesh: the mesh, see `data_mesh`; None for one device.
        shard_parameters: whether large arrays of the state are split into shards, see `place`.
        microbatches: number of microbatches per batch, see `train_step`.
        ema_decay: decay of the moving averages, if the state has them; validation then uses the averages.
        validation: returns this process's held-out batches, from the first one on at each call.
        eval_every: steps between validations; the last step is always followed by one.
        checkpoints: folder of checkpoints; None for none.
        checkpoint_every: steps between checkpoints; one is also written after validations and after the last step.
        allow_changes: whether to resume from a checkpoint of another key, batch size or data set, see `Checkpoints`.
        callbacks: where metrics go.
        log_every: steps between metrics of the training batches, which are those of a single step.
        progress: whether to show a progress bar.

    Returns:
        The trained model, the state after the last step, and the history.

    Raises:
        NonFiniteLossError: the loss, its gradient or the parameters were not finite; no checkpoint of that is written.
        DataExhaustedError: the data ended before `num_steps`.
        CheckpointError: a checkpoint could not be written or read; earlier ones are intact.
        TrainingInterrupted: SIGTERM or Ctrl-C; a `KeyboardInterrupt` that has the state.
        ProcessLostError: another process of the run died; see `initialize`.
    """
    if not isinstance(state, TrainState):
        raise ValueError(f"`state` must be one, as `init_state` returns it; got {type(state).__name__}.")
    if not callable(objective) or isinstance(objective, AbstractLoss):
        raise ValueError(
            f"`objective` must be one, such as `EpistemicObjective(loss)`; got {type(objective).__name__}."
        )
    check_optimizer(optimizer)
    check_positive("log_every", log_every)
    if validation is None and eval_every is not None:
        raise ValueError(f"`eval_every` must be left out without `validation`; got {eval_every}.")
    stream = as_stream(data)
    if stream is None:
        raise ValueError(f"`data` must be a stream of batches, such as a `MemoryIterator`; got {type(data).__name__}.")
    (eval_key,) = named_keys(state.key, "evaluation")
    evaluate = None
    if validation is not None:
        evaluate = make_evaluation(objective.evaluate, validation, mesh, key=eval_key)
    schedule = Schedule(
        num_steps=num_steps,
        block_size=log_every,
        eval_every=eval_every,
        checkpoint_every=checkpoint_every,
        log_every=log_every,
    )
    step = make_train_step(
        objective,
        optimizer,
        mesh=mesh,
        shard_parameters=shard_parameters,
        microbatches=microbatches,
        ema_decay=ema_decay,
        donate=True,
    )
    return _train_on_stream(
        state,
        stream,
        step,
        schedule,
        mesh=mesh,
        shard_parameters=shard_parameters,
        checkpoints=checkpoints,
        allow_changes=allow_changes,
        evaluate=evaluate,
        callbacks=check_callbacks(callbacks),
        progress=progress,
    )
