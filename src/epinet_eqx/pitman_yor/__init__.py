"""The Pitman-Yor head: a classifier as an ENN that keeps the classifier's marginal predictions exactly."""

from ._calibrate import Calibrated as Calibrated
from ._calibrate import calibrate as calibrate
from ._head import PitmanYor as PitmanYor
from ._head import attach as attach
from ._losses import log_losses as log_losses
from ._losses import logits_log_losses as logits_log_losses
from ._losses import tempered_outputs as tempered_outputs
from ._mean import MeanPrediction as MeanPrediction
from ._mean import OnMean as OnMean
from ._parts import AbstractAlpha as AbstractAlpha
from ._parts import ConstantAlpha as ConstantAlpha
from ._parts import FourierField as FourierField
from ._parts import LogisticAlpha as LogisticAlpha
from ._quantile import log_stable_quantile as log_stable_quantile
from ._stable import log_stable as log_stable
from ._urn import counts_log_prob as counts_log_prob
from ._urn import joint_log_prob as joint_log_prob
from ._urn import log_num_clusters as log_num_clusters
from ._urn import log_stirling as log_stirling
from ._urn import repeat_log_probs as repeat_log_probs
