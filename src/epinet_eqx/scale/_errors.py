"""Ways in which training at scale ends early."""

import pathlib

from ._state import ScaleState


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; those written before are as they were."""


class DivergedError(RuntimeError):
    """The loss, its gradient or the new parameters were not finite.

    Attributes:
        step: the first step that was not finite, counted from zero.
        state: the state when that was seen; steps that were not finite have not changed it.
    """

    def __init__(self, step: int, loss: float, state: ScaleState):
        """Initialize with the step, its loss and the state."""
        self.step = step
        self.state = state
        super().__init__(
            f"At step {step} the loss, its gradient or the new parameters were not finite; the loss was {loss}. "
            "Try a smaller learning rate, a longer warm-up or clipping of gradients (`optax.clip_by_global_norm`); a "
            "label that is no class gives NaN, too."
        )


class DataEndedError(RuntimeError):
    """The data ended before the last step.

    Attributes:
        state: the state after the last step made.
    """

    def __init__(self, made: int, num_steps: int, state: ScaleState):
        """Initialize with the number of steps made and asked for, and the state."""
        self.state = state
        super().__init__(f"`data` must have batches for {num_steps} steps; they ended after {made}.")


class TrainingPreempted(KeyboardInterrupt):
    """Training was asked to stop (SIGTERM, or SIGINT from Ctrl-C), and did so after a whole step.

    Attributes:
        step: number of steps made.
        state: the state after them.
        path: the checkpoint that was written, or None.
    """

    def __init__(self, signal_name: str, state: ScaleState, num_steps: int, path: pathlib.Path | None):
        """Initialize with the signal, the state, the number of steps asked for, and the checkpoint."""
        self.step = int(state.step)
        self.state = state
        self.path = path
        kept = (
            "No folder for checkpoints was given; the state is in `.state` of this exception."
            if path is None
            else f"Its checkpoint is {str(path)!r}: start the same program again, and training goes on from there."
        )
        super().__init__(f"{signal_name} stopped training after step {self.step} of {num_steps}. {kept}")
