"""Choose a temperature, a prior scale or another parameter on held-out data (Appendix G)."""

from ._tune import Tuned as Tuned
from ._tune import tune as tune
from ._tune import tune_temperature as tune_temperature
