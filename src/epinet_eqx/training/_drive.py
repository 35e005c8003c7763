"""The loop of `fit` and `fit_many` on the host: blocks of steps, progress, history, validation."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from .._checks import check_positive
from .._enn import AbstractENN
from ._errors import DataExhaustedError, NonFiniteLossError, TrainingInterrupted
from ._result import FitResult, History
from ._state import TrainState

# Makes up to so many steps: fewer only if the data have ended. Returns the new state, and the losses of the steps made.
Advance = Callable[[TrainState, int], tuple[TrainState, np.ndarray]]

# Returns the validation loss of an ENN, or of each member of a stack.
Evaluate = Callable[[AbstractENN], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many steps to make, and when to look up."""

    num_steps: int | None
    block_size: int
    eval_every: int | None

    def __post_init__(self):
        """Raise unless all are positive."""
        for name in ("num_steps", "block_size", "eval_every"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def next_block(self, made: int) -> int:
        """Return the number of steps until something has to be done."""
        ends = [made + self.block_size]
        if self.num_steps is not None:
            ends.append(self.num_steps)
        if self.eval_every is not None:
            ends.append((made // self.eval_every + 1) * self.eval_every)
        return min(ends) - made

    def is_due(self, made: int) -> bool:
        """Return whether the ENN is to be validated after `made` steps."""
        return made == self.num_steps or (self.eval_every is not None and made % self.eval_every == 0)


def make_schedule(
    num_steps: int | None, block_size: int, eval_every: int | None, validation: Any, keep_best: bool
) -> Schedule:
    """Return the schedule of a training, or raise if it asks for validation without data for it."""
    if validation is None:
        for name, value in (("eval_every", eval_every), ("keep_best", keep_best)):
            if value:
                raise ValueError(f"`{name}` must be left out without `validation`; got {value}.")
    elif eval_every is None and num_steps is not None:
        eval_every = max(num_steps // 10, 1)
    return Schedule(num_steps=num_steps, block_size=block_size, eval_every=eval_every)


class Recorder:
    """Collects the history, and the best ENN so far."""

    def __init__(self, *, keep_best: bool):
        """Initialize empty."""
        self.keep_best = keep_best
        self.best: AbstractENN | None = None
        self.best_loss: np.ndarray | None = None
        self.losses: list[np.ndarray] = []
        self.validations: dict[int, np.ndarray] = {}

    def validate(self, made: int, loss: np.ndarray, enn: AbstractENN) -> None:
        """Record a validation loss after `made` steps; keep the ENN, or those of its members, that are better."""
        self.validations[made] = loss
        if not self.keep_best:
            return
        if self.best is None or self.best_loss is None:
            self.best, self.best_loss = enn, np.nan_to_num(loss, nan=np.inf)
        better = np.asarray(loss < self.best_loss)
        self.best_loss = np.where(better, loss, self.best_loss)
        self.best = _select(better, enn, self.best)

    def history(self) -> History:
        """Return the history so far."""
        return History(
            losses=np.concatenate(self.losses) if self.losses else np.zeros(0),
            validation_steps=np.array([*self.validations], dtype=int),
            validation_losses=np.array([*self.validations.values()]),
        )

    def summary(self) -> str:
        """Return the mean loss of the last block and the last validation loss, for the progress bar."""
        losses = self.losses[-1][np.isfinite(self.losses[-1])]
        text = f"loss {losses.mean():.4g}" if losses.size else "loss not finite"
        return text + (f", validation {[*self.validations.values()][-1].mean():.4g}" if self.validations else "")


def _select(better: np.ndarray, new: AbstractENN, old: AbstractENN) -> AbstractENN:
    """Return the arrays of `new` where it is better, for each member if there are many, else those of `old`."""

    def select(after: Any, before: Any) -> Any:
        if not eqx.is_array(after):
            return after
        return jnp.where(better.reshape(better.shape + (1,) * (after.ndim - better.ndim)), after, before)

    return jax.tree.map(select, new, old)


def drive(
    state: TrainState,
    advance: Advance,
    evaluate: Evaluate | None,
    schedule: Schedule,
    *,
    keep_best: bool,
    progress: bool,
) -> FitResult:
    """Train in blocks; `state` may be a stack of states, whose failed members stop while the others go on."""
    start = np.asarray(state.step)
    made, target = 0, schedule.num_steps
    recorder = Recorder(keep_best=keep_best)
    failed = np.zeros(start.shape, dtype=bool)
    ended = False
    with tqdm(total=target, disable=not progress, unit="step", dynamic_ncols=True) as bar:
        try:
            while not (ended or failed.all() or made == target):
                count = schedule.next_block(made)
                state, losses = advance(state, count)
                ended = len(losses) < count
                made += len(losses)
                # A member that failed in an earlier block meets the same step again, which is not a new loss.
                losses = np.where(failed, np.nan, losses).astype(losses.dtype)
                reached = np.asarray(state.step) - start
                failed = np.asarray(reached < made)
                if failed.ndim == 0:
                    losses = losses[: len(losses) - made + int(reached) + 1]
                if losses.size:
                    recorder.losses.append(losses)
                if evaluate is not None and (ended or schedule.is_due(made)) and made not in recorder.validations:
                    recorder.validate(made, evaluate(state.enn), state.enn)
                if recorder.losses:
                    bar.set_postfix_str(recorder.summary(), refresh=False)
                bar.update(len(losses))
        except KeyboardInterrupt as interrupt:
            raise TrainingInterrupted(state, recorder.history()) from interrupt
    history = recorder.history()
    if failed.any():
        raise NonFiniteLossError(state, history, start=start, failed=failed)
    if made == 0 or (target is not None and made < target):
        raise DataExhaustedError(state, history, num_steps=target)
    return FitResult(state.enn if recorder.best is None else recorder.best, state, history)
