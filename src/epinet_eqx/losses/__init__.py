"""Training losses (Section 4.2)."""

from ._batch import Batch as Batch
from ._bootstrap import AbstractBootstrap as AbstractBootstrap
from ._bootstrap import BernoulliBootstrap as BernoulliBootstrap
from ._bootstrap import ExponentialBootstrap as ExponentialBootstrap
from ._bootstrap import PoissonBootstrap as PoissonBootstrap
from ._loss import AbstractLoss as AbstractLoss
from ._loss import CrossEntropy as CrossEntropy
from ._loss import FunctionLoss as FunctionLoss
from ._loss import LogLoss as LogLoss
from ._loss import SquaredLoss as SquaredLoss
from ._loss import anchored as anchored
from ._loss import mean_data_loss as mean_data_loss
from ._loss import mean_loss as mean_loss
from ._loss import share_prior as share_prior
from ._penalty import L2 as L2
from ._penalty import AbstractPenalty as AbstractPenalty
from ._penalty import AnchoredL2 as AnchoredL2
from ._penalty import GaussianKL as GaussianKL
from ._penalty import ScaleMixtureKL as ScaleMixtureKL
