"""Training (Algorithm 1)."""

from ._batches import AbstractBatches as AbstractBatches
from ._batches import EpochBatches as EpochBatches
from ._batches import UniformBatches as UniformBatches
from ._ensemble import fit_ensemble as fit_ensemble
from ._errors import DataExhaustedError as DataExhaustedError
from ._errors import NonFiniteLossError as NonFiniteLossError
from ._errors import TrainingInterrupted as TrainingInterrupted
from ._fit import fit as fit
from ._fit_many import fit_many as fit_many
from ._result import FitResult as FitResult
from ._result import History as History
from ._state import TrainState as TrainState
from ._state import init_state as init_state
from ._step import train_step as train_step
from ._steps import train_steps as train_steps
