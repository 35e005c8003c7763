"""The training loop on the host: blocks of steps, progress, history, validation, checkpoints, interrupts."""

import contextlib
import dataclasses
import io
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from tqdm import tqdm

from .._checks import check_positive
from ._callbacks import AbstractCallback
from ._checkpoints import Checkpoints
from ._processes import StopRequest
from ._result import DataExhaustedError, FitResult, History, NonFiniteLossError, TrainingInterrupted
from ._state import TrainState
from ._streams import DataIterator


class Block(NamedTuple):
    """The result of some steps: metrics have a first axis of steps, and `fit_many` a second one of members."""

    state: TrainState
    metrics: dict[str, np.ndarray]
    num_examples: int
    ended: bool


# Makes up to a number of steps, fewer if the data end or the request to stop comes in.
Advance = Callable[[TrainState, int, StopRequest], Block]

# Returns validation metrics of a model and its state, or of each member of a stack.
Evaluate = Callable[[PyTree, PyTree], dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many steps to make, and the intervals of validation, checkpoints and metrics."""

    num_steps: int | None
    block_size: int
    eval_every: int | None = None
    checkpoint_every: int | None = None
    log_every: int | None = None
    patience: int | None = None

    def __post_init__(self):
        """Raise unless all are positive."""
        for name, value in dataclasses.asdict(self).items():
            if value is not None:
                check_positive(name, value)

    def next_block(self, made: int) -> int:
        """Return the number of steps until something is due."""
        ends = [made + self.block_size]
        if self.num_steps is not None:
            ends.append(self.num_steps)
        for every in (self.eval_every, self.checkpoint_every, self.log_every):
            if every is not None:
                ends.append((made // every + 1) * every)
        return min(ends) - made

    def is_due(self, made: int, every: int | None) -> bool:
        """Return whether something that happens at an interval, and after the last step, is due."""
        return made == self.num_steps or (every is not None and made % every == 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saving:
    """Where checkpoints go, and the data whose position they hold."""

    checkpoints: Checkpoints
    data: DataIterator


class _Progress:
    """Collects the history, and the best model so far."""

    def __init__(self, *, keep_best: bool):
        self.keep_best = keep_best
        self.best: PyTree | None = None
        self.best_loss: np.ndarray | None = None
        self.losses: list[np.ndarray] = []
        self.validation: dict[int, dict[str, np.ndarray]] = {}

    def validate(self, made: int, metrics: dict[str, Any], model: PyTree) -> None:
        """Record validation metrics after `made` steps; keep the model, or those of its members, that are better."""
        self.validation[made] = {name: np.asarray(value) for name, value in metrics.items()}
        if not self.keep_best:
            return
        loss = self.validation[made]["loss"]
        better = np.asarray(loss < (np.inf if self.best_loss is None else self.best_loss))
        self.best_loss = np.where(better, loss, np.inf if self.best_loss is None else self.best_loss)
        # New arrays always, since steps may take the memory of the model.
        self.best = _select(better, model, model if self.best is None else self.best)

    def num_worse(self) -> int:
        """Return how many of the last validations have not improved on the best one before them."""
        losses = [float(metrics["loss"]) for metrics in self.validation.values()]
        return len(losses) - 1 - int(np.argmin(losses)) if losses else 0

    def history(self) -> History:
        """Return the history so far."""
        names = next(iter(self.validation.values()), {})
        return History(
            losses=np.concatenate(self.losses) if self.losses else np.zeros(0),
            validation_steps=np.array([*self.validation], dtype=int),
            validation={name: np.array([metrics[name] for metrics in self.validation.values()]) for name in names},
        )

    def summary(self) -> str:
        """Return the mean loss of the last block and the last validation loss, for the progress bar."""
        losses = self.losses[-1][np.isfinite(self.losses[-1])]
        text = f"loss {losses.mean():.4g}" if losses.size else "loss not finite"
        return text + (f", validation {[*self.validation.values()][-1]['loss'].mean():.4g}" if self.validation else "")


@eqx.filter_jit
def _select(better: Any, new: PyTree, old: PyTree) -> PyTree:
    """Return the arrays of `new` where it is better, for each member if there are many, else those of `old`."""

    def select(after: Any, before: Any) -> Any:
        if not eqx.is_array(after):
            return after
        return jnp.where(better.reshape(better.shape + (1,) * (after.ndim - better.ndim)), after, before)

    return jax.tree.map(select, new, old)


class _Bar:
    """A progress bar in steps; hidden, it still measures throughput if requested."""

    def __init__(self, *, total: int | None, made: int, visible: bool, measuring: bool):
        # Only a displayed bar measures: a hidden one writes to a string.
        self._sink = None if visible else io.StringIO()
        self._bar = tqdm(
            total=total,
            initial=made,
            disable=not (visible or measuring),
            unit="step",
            dynamic_ncols=True,
            file=self._sink,
        )
        self._examples_per_step = 0.0

    def update(self, num_steps: int, num_examples: int, text: str) -> None:
        """Count steps."""
        self._examples_per_step = num_examples / num_steps if num_steps else self._examples_per_step
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(num_steps)
        if self._sink is not None:
            self._sink.seek(0)
            self._sink.truncate()

    @property
    def examples_per_second(self) -> float:
        """Recent throughput; the average since the start while that is unknown."""
        now = self._bar.format_dict
        rate = now["rate"] or (now["n"] - now["initial"]) / max(now["elapsed"], 1e-9)
        return rate * self._examples_per_step

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()


@contextlib.contextmanager
def _opened(callbacks: Sequence[AbstractCallback], step: int) -> Iterator[None]:
    """Start the callbacks, and close them however training ends."""
    with contextlib.ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.close)
            callback.start(step)
        yield


class _Run:
    """One call of the driver: what happens between blocks."""

    def __init__(
        self,
        start: np.ndarray,
        schedule: Schedule,
        evaluate: Evaluate | None,
        saving: Saving | None,
        callbacks: Sequence[AbstractCallback],
        bar: _Bar,
        recorder: _Progress,
    ):
        self.start, self.schedule, self.evaluate, self.saving = start, schedule, evaluate, saving
        self.callbacks, self.bar, self.recorder = callbacks, bar, recorder
        self.saved: int | None = None

    def log(self, made: int, metrics: dict[str, Any]) -> None:
        """Pass metrics to the callbacks."""
        for callback in self.callbacks:
            callback.log(int(self.start) + made, {name: float(value) for name, value in metrics.items()})

    def record(self, made: int, block: Block, losses: np.ndarray) -> None:
        """Record the losses of a block, and log the metrics of its last step if that is due."""
        if losses.size == 0:
            return
        self.recorder.losses.append(losses)
        self.bar.update(len(losses), block.num_examples, self.recorder.summary())
        if self.callbacks and self.schedule.is_due(made, self.schedule.log_every):
            last = {name: values[-1] for name, values in block.metrics.items()}
            self.log(made, {**last, "examples_per_second": self.bar.examples_per_second})

    def inspect(self, made: int, state: TrainState, *, ended: bool, stopping: bool) -> pathlib.Path | None:
        """Validate and write a checkpoint if that is due; return the folder of the checkpoint."""
        scores: dict[str, Any] = {}
        due = ended or self.schedule.is_due(made, self.schedule.eval_every)
        if self.evaluate is not None and due and made not in self.recorder.validation:
            model = state.averaged()
            scores = self.evaluate(*model)
            self.recorder.validate(made, scores, model[0])
            self.log(made, {f"validation/{name}": value for name, value in scores.items()})
        due = ended or stopping or bool(scores) or self.schedule.is_due(made, self.schedule.checkpoint_every)
        if self.saving is None or not due or self.saved == made:
            return None
        self.saved = made
        return self.saving.checkpoints.save(state, self.saving.data, metrics=scores)


def drive(
    state: TrainState,
    advance: Advance,
    schedule: Schedule,
    *,
    evaluate: Evaluate | None = None,
    keep_best: bool = False,
    saving: Saving | None = None,
    callbacks: Sequence[AbstractCallback] = (),
    start: np.ndarray | None = None,
    progress: bool,
) -> FitResult:
    """Train in blocks of steps.

    Args:
        state: the state to start from; may be a stack, whose failed members stop while the others continue.
        advance: makes steps.
        schedule: number of steps from `start` on, and intervals.
        evaluate: returns validation metrics.
        keep_best: whether to return the model with the smallest validation loss.
        saving: where checkpoints go.
        callbacks: where metrics go.
        start: the step from which `schedule` counts, by default that of `state`; smaller for a restored one.
        progress: whether to show a progress bar.
    """
    first = np.asarray(state.step)
    start = first if start is None else start
    made = done = int(np.max(first - start))
    target = schedule.num_steps
    is_first_process = jax.process_index() == 0
    callbacks = callbacks if is_first_process else ()
    bar = _Bar(total=target, made=made, visible=progress and is_first_process, measuring=bool(callbacks))
    recorder = _Progress(keep_best=keep_best)
    run = _Run(start, schedule, evaluate, saving, callbacks, bar, recorder)
    if saving is not None and made > 0 and (metrics := saving.checkpoints.metrics(int(first))):
        recorder.validation[made] = {name: np.asarray(value) for name, value in metrics.items()}
    failed, ended, stopped = np.zeros(start.shape, dtype=bool), False, False
    with contextlib.closing(bar), _opened(callbacks, int(np.max(first))), StopRequest() as request:
        while not (ended or stopped or failed.all() or (target is not None and made >= target)):
            count = schedule.next_block(made)
            block = advance(state, count, request)
            state, ended, losses = block.state, block.ended, block.metrics["loss"]
            made += len(losses)
            # A member that failed in an earlier block meets the same step again, which is not a new loss.
            losses = np.where(failed, np.nan, losses).astype(losses.dtype)
            reached = np.asarray(state.step) - start
            failed = np.asarray(reached < made)
            if failed.ndim == 0 and failed:
                losses = losses[: len(losses) - made + int(reached) + 1]
                recorder.losses.append(losses)
                break
            run.record(made, block, losses)
            signal_name = request.agreed()
            path = run.inspect(made, state, ended=ended, stopping=signal_name is not None)
            if signal_name is not None and not ended and made != target:
                raise TrainingInterrupted(signal_name, state, recorder.history(), num_steps=target, path=path)
            stopped = schedule.patience is not None and recorder.num_worse() >= schedule.patience
    history = recorder.history()
    if failed.any():
        raise NonFiniteLossError(state, history, start=first, failed=failed)
    if not stopped and (made == 0 or (target is not None and made < target)):
        raise DataExhaustedError(state, history, made=made - done, num_steps=target)
    return FitResult(state.model if recorder.best is None else recorder.best, state, history)
