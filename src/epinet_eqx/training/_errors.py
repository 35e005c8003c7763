"""Ways in which training ends early; each keeps the state and the history."""

import numpy as np

from ._result import History
from ._state import TrainState

_ADVICE = (
    "Try a smaller learning rate, clipping of gradients (`optax.clip_by_global_norm`), or other scales of inputs "
    "and targets; a label that is no class gives NaN, too. The state before that step is in `.state` of this error."
)


class NonFiniteLossError(RuntimeError):
    """The loss, its gradient or the new parameters were not finite.

    Attributes:
        step: the first step that was not finite.
        members: `fit_many`: the members that stopped, each with its step; empty for `fit`.
        state: the last good state. For `fit_many`, the other members are trained to the end.
        history: losses up to there.
    """

    def __init__(self, state: TrainState, history: History, *, start: np.ndarray, failed: np.ndarray):
        """Initialize.

        Args:
            state: the last good state.
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
    """The iterable of batches ended too early; `state` and `history` are those of the steps made."""

    def __init__(self, state: TrainState, history: History, *, num_steps: int | None):
        """Initialize with what was reached, and with the number of steps asked for."""
        self.state = state
        self.history = history
        super().__init__(
            f"`data` must yield at least {num_steps or 1} batches, as `num_steps` is {num_steps}; "
            f"got {len(history.losses)}. Say `num_steps=None` to train until the data end. "
            "The state after them is in `.state` of this error."
        )


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted (Ctrl-C); `state` and `history` are those of the last complete block of steps."""

    def __init__(self, state: TrainState, history: History):
        """Initialize with what was reached."""
        self.state = state
        self.history = history
        super().__init__(
            f"Training was interrupted after {len(history.losses)} steps; the state is in `.state` of this exception."
        )
