"""Configurations that several artifacts share: frozen dataclasses whose defaults are tier `paper`.

`units()` splits one into runs. A configuration of one artifact alone stands in its file.
"""

from .abstract import Config as Config
from .abstract import unit_of as unit_of
from .decisions import ActiveLearning as ActiveLearning
from .decisions import Bandits as Bandits
from .decisions import Thesis as Thesis
from .images import ImageStudy as ImageStudy
from .testbed import Ablation as Ablation
from .testbed import AgentSummary as AgentSummary
from .testbed import Chains as Chains
from .testbed import Curves as Curves
from .testbed import Departures as Departures
from .testbed import Scaling as Scaling
