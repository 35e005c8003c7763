"""Predictions of an ENN: samples, marginal and joint log-probabilities, uncertainty (Section 3)."""

from ._interval import Interval as Interval
from ._interval import interval as interval
from ._joint import conditional_log_probs as conditional_log_probs
from ._joint import independent_log_prob as independent_log_prob
from ._joint import joint_log_prob as joint_log_prob
from ._joint import joint_log_probs as joint_log_probs
from ._marginal import Moments as Moments
from ._marginal import Uncertainty as Uncertainty
from ._marginal import entropy as entropy
from ._marginal import marginal_log_probs as marginal_log_probs
from ._marginal import moments as moments
from ._marginal import uncertainty as uncertainty
from ._samples import Samples as Samples
from ._samples import join_samples as join_samples
from ._samples import sample as sample
