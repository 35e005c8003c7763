"""Training of one ENN, with progress, history and validation."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import check_positive
from .._enn import AbstractENN
from .._keys import named_keys
from ..indices import AbstractIndex
from ..losses import AbstractLoss, Batch, mean_data_loss
from ._batches import AbstractBatches, UniformBatches
from ._data import as_batch, as_stream, check_data
from ._drive import Advance, Evaluate, drive, make_schedule
from ._result import FitResult
from ._state import TrainState, as_state
from ._step import Trained, merge, step_indices, update
from ._steps import train_loop

# One object for all fits: a compiled loop is found again by the identity of its optimizer.
DEFAULT_OPTIMIZER = optax.adam(1e-3)

# The testbed's number (Appendix F.3), which is its index dimension.
_MAX_INDEX_SAMPLES = 8

# Steps on streamed batches between two looks at the loss: few, since each may be slow and is lost by an interrupt.
_STREAM_BLOCK = 10


def default_index_samples(index: AbstractIndex) -> int:
    """Return how many indices a step samples unless told: no more than there are, which may be one."""
    return min(index.size, _MAX_INDEX_SAMPLES)


@eqx.filter_jit
def _run_block(
    state: TrainState,
    data: Batch,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    batches: AbstractBatches,
    num_index_samples: int,
    capacity: int,
    num_steps: Int[Array, ""],
) -> tuple[TrainState, Float[Array, " steps"]]:
    """Make up to `capacity` steps in one program, whatever their number."""
    return train_loop(
        state,
        data,
        loss=loss,
        optimizer=optimizer,
        num_index_samples=num_index_samples,
        batches=batches,
        capacity=capacity,
        num_steps=num_steps,
    )


@eqx.filter_jit
def _stream_step(
    state: TrainState,
    ok: Bool[Array, ""],
    batch: Batch,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    num_index_samples: int,
) -> tuple[TrainState, Bool[Array, ""], Float[Array, ""]]:
    """Make one step on a streamed batch, unless an earlier one failed."""
    params, rest = eqx.partition(state.enn, state.mask)
    zs = step_indices(state.enn.index, num_index_samples, state.step[None], key=state.key)[0]
    trained = Trained(params, state.opt_state, state.step)
    trained, value, ok = update(trained, rest, batch, zs, loss=loss, optimizer=optimizer, ok=ok)
    return merge(state, trained, rest), ok, value


@eqx.filter_jit
def _validate(
    enn: AbstractENN, loss: AbstractLoss, zs: Shaped[Array, "samples ..."], validation: Batch
) -> Float[Array, ""]:
    """Return the mean data loss."""
    return mean_data_loss(loss, enn, zs, validation)


def _advance_in_memory(
    data: Batch,
    loss: AbstractLoss,
    optimizer: optax.GradientTransformation,
    batches: AbstractBatches,
    num_index_samples: int,
    block_size: int,
) -> Advance:
    """Return a function that makes steps on data in memory."""

    def advance(state: TrainState, num_steps: int) -> tuple[TrainState, np.ndarray]:
        count = jnp.asarray(num_steps, dtype=jnp.int32)
        state, losses = _run_block(state, data, loss, optimizer, batches, num_index_samples, block_size, count)
        return state, np.asarray(losses)[:num_steps]

    return advance


def _advance_stream(
    stream: Iterator[Any], loss: AbstractLoss, optimizer: optax.GradientTransformation, num_index_samples: int
) -> Advance:
    """Return a function that makes steps on streamed batches."""
    checked = False

    def advance(state: TrainState, num_steps: int) -> tuple[TrainState, np.ndarray]:
        nonlocal checked
        losses = []
        ok = jnp.array(True)
        for _, batch in zip(range(num_steps), stream, strict=False):
            if not isinstance(batch, Batch):
                raise ValueError(f"`data` must be a `Batch`, a pair `(x, y)` or yield `Batch`es; got {type(batch)}.")
            if not checked:
                check_data("data", batch, state.enn, loss)
                checked = True
            state, ok, value = _stream_step(state, ok, batch, loss, optimizer, num_index_samples)
            losses.append(value)
        return state, np.asarray(jnp.stack(losses)) if losses else np.zeros(0)

    return advance


def _evaluator(validation: Batch, loss: AbstractLoss, zs: Shaped[Array, "samples ..."]) -> Evaluate:
    """Return a function that validates an ENN, always at the same indices."""
    return lambda enn: np.asarray(_validate(enn, loss, zs, validation))


def fit(
    enn: AbstractENN | TrainState,
    data: Batch | tuple[Any, Any] | Iterable[Batch],
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
    progress: bool = True,
    block_size: int = 100,
    key: PRNGKeyArray,
) -> FitResult:
    """Train an ENN by Algorithm 1.

    Args:
        enn: the ENN; or the state of a training to go on from, whose key and mask stay in force.
        data: a data set in memory, as a `Batch` or a pair `(x, y)`; or any iterable of batches, which are streamed.
        loss: the loss.
        num_steps: number of steps, from here on; None for as many as an iterable has batches.
        batch_size: examples per step for data in memory; None for all of them.
        sampling: how a batch is drawn from data in memory: `UniformBatches`, as Algorithm 1 has it, or `EpochBatches`.
        optimizer: any optax optimizer; Adam at 1e-3 by default. Use one object for many fits: they share a program.
        num_index_samples: index samples per step; by default the size of the index, at most the testbed's 8.
        mask: what is trained, `trainable_mask(enn)` by default; see `init_state`.
        validation: held-out examples; the mean of their loss at fixed indices, without penalty and bootstrap, goes
            into the history.
        eval_every: steps between validations, a tenth of all by default; the last step is always followed by one.
        keep_best: whether the ENN returned is the one with the smallest validation loss.
        progress: whether a progress bar is shown.
        block_size: steps that are compiled into one program, for data in memory; progress and interrupts wait for it.
        key: random key.

    Returns:
        The ENN, the state after the last step, and the history.

    Raises:
        NonFiniteLossError: the loss, its gradient or the parameters were not finite; has the last good state.
        DataExhaustedError: an iterable ended before `num_steps`; has the state after its last batch.
        TrainingInterrupted: Ctrl-C; a `KeyboardInterrupt` that has the state of the last complete block.
    """
    train_key, validation_key = named_keys(key, "train", "validation")
    stream = as_stream(data)
    block = block_size if stream is None else min(block_size, _STREAM_BLOCK)
    schedule = make_schedule(num_steps, block, eval_every, validation, keep_best)
    state = as_state(enn, optimizer, mask=mask, key=train_key)
    index = state.enn.index
    samples = default_index_samples(index) if num_index_samples is None else num_index_samples
    check_positive("num_index_samples", samples)
    evaluate = None
    if validation is not None:
        held_out = as_batch("validation", validation)
        check_data("validation", held_out, state.enn, loss)
        evaluate = _evaluator(held_out, loss, index.sample_many(samples, key=validation_key))
    if stream is not None:
        advance = _advance_stream(stream, loss, optimizer, samples)
    else:
        if num_steps is None:
            raise ValueError("`num_steps` must be given for data in memory; got None.")
        in_memory = as_batch("data", data)
        check_data("data", in_memory, state.enn, loss)
        advance = _advance_in_memory(in_memory, loss, optimizer, sampling(batch_size), samples, block_size)
    return drive(state, advance, evaluate, schedule, keep_best=keep_best, progress=progress)
