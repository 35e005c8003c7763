"""Training losses (Section 4.2)."""

from ._batch import Batch as Batch
from ._bootstrap import AbstractBootstrap as AbstractBootstrap
from ._bootstrap import BernoulliBootstrap as BernoulliBootstrap
from ._bootstrap import ExponentialBootstrap as ExponentialBootstrap
from ._bootstrap import PoissonBootstrap as PoissonBootstrap
from ._cross_entropy import CrossEntropy as CrossEntropy
from ._elbo import GaussianKL as GaussianKL
from ._elbo import ScaleMixtureKL as ScaleMixtureKL
from ._loss import AbstractLoss as AbstractLoss
from ._mean import mean_data_loss as mean_data_loss
from ._mean import mean_loss as mean_loss
from ._penalty import L2 as L2
from ._penalty import AbstractPenalty as AbstractPenalty
from ._squared import SquaredLoss as SquaredLoss
