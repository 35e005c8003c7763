"""How good the predictions of an ENN are (Section 3.1, Appendix E)."""

from ._classification import accuracy as accuracy
from ._classification import brier_score as brier_score
from ._classification import expected_calibration_error as expected_calibration_error
from ._coverage import Coverage as Coverage
from ._coverage import coverage as coverage
from ._detection import aupr as aupr
from ._detection import auroc as auroc
from ._detection import fpr_at_tpr as fpr_at_tpr
from ._estimate import Estimate as Estimate
from ._log_loss import LogLosses as LogLosses
from ._log_loss import LossGrid as LossGrid
from ._log_loss import dyadic_log_loss as dyadic_log_loss
from ._log_loss import joint_log_loss as joint_log_loss
from ._log_loss import log_loss_curve as log_loss_curve
from ._log_loss import log_losses as log_losses
from ._log_loss import loss_grid as loss_grid
from ._log_loss import marginal_log_loss as marginal_log_loss
from ._log_loss import sampled_dyadic_log_loss as sampled_dyadic_log_loss
from ._near import joint_gain as joint_gain
from ._near import near_pairs as near_pairs
