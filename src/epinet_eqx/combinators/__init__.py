"""ENNs built from an ENN: with other outputs, with a prior, on a trunk."""

from ._outputs import AbstractWrapper as AbstractWrapper
from ._outputs import BradleyTerry as BradleyTerry
from ._outputs import ClassProbs as ClassProbs
from ._outputs import InPrecision as InPrecision
from ._outputs import Marginalized as Marginalized
from ._outputs import Mirrored as Mirrored
from ._outputs import OnTrunk as OnTrunk
from ._outputs import Tempered as Tempered
from ._outputs import WithNoiseNetwork as WithNoiseNetwork
from ._outputs import WithNoiseScale as WithNoiseScale
from ._prior import Prior as Prior
from ._prior import WithPrior as WithPrior
