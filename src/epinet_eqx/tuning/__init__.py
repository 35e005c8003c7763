"""Choose a temperature, a prior scale or another parameter on held-out data (Appendix G)."""

from ._calibrate import Calibration as Calibration
from ._calibrate import calibrate as calibrate
from ._tune import Tuned as Tuned
from ._tune import tune as tune
from ._tune import tune_temperature as tune_temperature
