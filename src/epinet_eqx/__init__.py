"""Epistemic neural networks in Equinox."""

from . import baselines as baselines
from . import bayes as bayes
from . import decisions as decisions
from . import epinet as epinet
from . import indices as indices
from . import losses as losses
from . import metrics as metrics
from . import networks as networks
from . import predict as predict
from . import scale as scale
from . import testbed as testbed
from . import training as training
from . import weights as weights
from ._enn import AbstractENN as AbstractENN
from ._enn import Tempered as Tempered
from ._enn import map_head as map_head
from ._keys import named_keys as named_keys
from ._save import Header as Header
from ._save import load as load
from ._save import read_header as read_header
from ._save import save as save
from ._tree import Frozen as Frozen
from ._tree import count_parameters as count_parameters
from ._tree import freeze as freeze
from ._tree import trainable_mask as trainable_mask
from .epinet import attach as attach
from .training import fit as fit

__version__ = "0.1.0"
