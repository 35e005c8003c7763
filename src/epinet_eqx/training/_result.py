"""What training returns."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from .._enn import AbstractENN
from ._state import TrainState


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """What was measured while training; losses of `fit_many` have a last axis of members.

    Attributes:
        losses: the loss before each step, on that step's batch and indices.
        validation_steps: numbers of steps made when the ENN was validated.
        validation_losses: mean data loss on the validation data then.
    """

    losses: np.ndarray
    validation_steps: np.ndarray
    validation_losses: np.ndarray

    @property
    def best_step(self) -> Any:
        """The number of steps with the smallest validation loss, or None without validation."""
        if len(self.validation_steps) == 0:
            return None
        return self.validation_steps[np.argmin(np.nan_to_num(self.validation_losses, nan=np.inf), axis=0)]


class FitResult(NamedTuple):
    """The trained ENN (the best one with `keep_best`), the state after the last step, and the history."""

    enn: AbstractENN
    state: TrainState
    history: History
