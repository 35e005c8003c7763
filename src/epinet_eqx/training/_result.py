"""What training returns, and the three errors that end it early; each carries the state and the history."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import numpy as np

from .._enn import AbstractENN
from ._objectives import network_as_enn
from ._state import TrainState

_ADVICE = (
    "Try a smaller learning rate, a longer warm-up, gradient clipping (`optax.clip_by_global_norm`), or other scales "
    "of inputs and targets; a label that is no class gives NaN, too. The state before that step is in `.state` of this "
    "error."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """Metrics measured during training; values of `fit_many` and `fit_ensemble` have a last axis of members.

    Attributes:
        losses: the loss before each step that this call made, on that step's batch.
        validation_steps: numbers of steps made when the model was validated, counted from the state that training
            was given.
        validation: the metrics of these validations by name.
    """

    losses: np.ndarray
    validation_steps: np.ndarray
    validation: dict[str, np.ndarray]

    @property
    def validation_losses(self) -> np.ndarray:
        """The mean data loss on the validation data at `validation_steps`."""
        return self.validation.get("loss", np.zeros(0))

    @property
    def best_step(self) -> Any:
        """The number of steps with the smallest validation loss, or None without validation."""
        if len(self.validation_steps) == 0:
            return None
        return self.validation_steps[np.argmin(np.nan_to_num(self.validation_losses, nan=np.inf), axis=0)]


class FitResult(NamedTuple):
    """The trained model (the best one with `keep_best`), the state after the last step, and the history."""

    model: Any
    state: TrainState
    history: History

    @property
    def enn(self) -> AbstractENN:
        """The trained model as an ENN: a network as the one that ignores its index."""
        return network_as_enn(self.model)


class NonFiniteLossError(RuntimeError):
    """The loss, its gradient or the new parameters were not finite.

    Attributes:
        step: the first step that was not finite.
        members: `fit_many`: the members that stopped, each with its step; empty otherwise.
        state: the last finite state. For `fit_many`, the other members are trained to the end.
        history: losses up to there.
    """

    def __init__(self, state: TrainState, history: History, *, start: np.ndarray, failed: np.ndarray):
        """Initialize.

        Args:
            state: the last finite state.
            history: the history up to there.
            start: the step at which the history begins, for each member if there are many.
            failed: whether it failed, for each member if there are many.
        """
        steps = np.asarray(state.step)
        self.state = state
        self.history = history
        if failed.ndim == 0:
            self.step = int(steps)
            self.members: dict[int, int] = {}
            loss = float(history.losses[self.step - int(start)])
            which = f"At step {self.step} the loss was {loss}"
        else:
            self.members = {int(member): int(steps[member]) for member in np.flatnonzero(failed)}
            self.step = min(self.members.values())
            found = [f"{m} at step {t} with loss {history.losses[t - start[m], m]}" for m, t in self.members.items()]
            which = f"{len(found)} of {len(failed)} members stopped: {', '.join(found[:10])}"
            which += ", and others" if len(found) > 10 else ""
        super().__init__(f"Training met a loss, gradient or parameters that are not finite. {which}. {_ADVICE}")


class DataExhaustedError(RuntimeError):
    """The data ended too early; `state` and `history` are those of the steps made."""

    def __init__(self, state: TrainState, history: History, *, made: int, num_steps: int | None):
        """Initialize with the state and history so far, and the numbers of steps made and requested."""
        self.state = state
        self.history = history
        super().__init__(
            f"`data` must yield at least {num_steps or 1} batches, as `num_steps` is {num_steps}; got {made}. "
            "Pass `num_steps=None` to train until the data end. The state after them is in `.state` of this error."
        )


class TrainingInterrupted(KeyboardInterrupt):
    """SIGTERM or Ctrl-C stopped training after a complete step.

    Attributes:
        step: number of steps made in all.
        state: the state after them.
        history: the history up to there.
        path: the checkpoint that was written, or None.
    """

    def __init__(
        self, signal_name: str, state: TrainState, history: History, *, num_steps: int | None, path: pathlib.Path | None
    ):
        """Initialize with the signal, state and history so far, the number of steps requested, and the checkpoint."""
        self.step = int(np.max(np.asarray(state.step)))
        self.state = state
        self.history = history
        self.path = path
        kept = (
            "The state is in `.state` of this exception."
            if path is None
            else f"Its checkpoint is {str(path)!r}: run the same program again to resume."
        )
        wanted = "" if num_steps is None else f" of {num_steps}"
        super().__init__(f"{signal_name} stopped training after step {self.step}{wanted}. {kept}")
