"""Epistemic neural networks in Equinox."""

import importlib
from typing import TYPE_CHECKING, Any

from ._cost import Cost as Cost
from ._cost import StageCost as StageCost
from ._cost import cost as cost
from ._draws import Draws as Draws
from ._enn import AbstractENN as AbstractENN
from ._keys import named_keys as named_keys
from ._save import Header as Header
from ._save import load as load
from ._save import read_header as read_header
from ._save import save as save
from ._tree import Frozen as Frozen
from ._tree import count_parameters as count_parameters
from ._tree import freeze as freeze
from ._tree import trainable_mask as trainable_mask

if TYPE_CHECKING:
    from . import acquisition as acquisition
    from . import bandits as bandits
    from . import baselines as baselines
    from . import bayes as bayes
    from . import combinators as combinators
    from . import data as data
    from . import decisions as decisions
    from . import epinet as epinet
    from . import indices as indices
    from . import likelihoods as likelihoods
    from . import losses as losses
    from . import metrics as metrics
    from . import networks as networks
    from . import pitman_yor as pitman_yor
    from . import predict as predict
    from . import testbed as testbed
    from . import training as training
    from . import tuning as tuning
    from . import weights as weights
    from .combinators import Tempered as Tempered
    from .epinet import attach as attach
    from .training import fit as fit

__version__ = "0.1.0"

# Packages are imported on first use, which keeps `import epinet_eqx` fast.
_PACKAGES = (
    "acquisition",
    "bandits",
    "tuning",
    "baselines",
    "bayes",
    "combinators",
    "data",
    "decisions",
    "epinet",
    "indices",
    "likelihoods",
    "losses",
    "metrics",
    "networks",
    "pitman_yor",
    "predict",
    "testbed",
    "training",
    "weights",
)
_HOMES = {"Tempered": "combinators", "attach": "epinet", "fit": "training"}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_HOMES})
