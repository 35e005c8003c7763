"""Configurations: frozen dataclasses whose defaults are tier `paper`; `units()` splits one into runs."""

from .abstract import Config as Config
from .decisions import ActiveLearning as ActiveLearning
from .decisions import Bandits as Bandits
from .decisions import Sets as Sets
from .decisions import Thesis as Thesis
from .images import ImageStudy as ImageStudy
from .testbed import Ablation as Ablation
from .testbed import AgentSummary as AgentSummary
from .testbed import Chains as Chains
from .testbed import Curves as Curves
from .testbed import Departures as Departures
from .testbed import Scaling as Scaling
from .theory import EnnRabbitDuck as EnnRabbitDuck
from .theory import EpinetDiagram as EpinetDiagram
from .theory import MarginalsInsufficient as MarginalsInsufficient
from .theory import MarginalsInsufficientRun as MarginalsInsufficientRun
from .theory import RabbitDuck as RabbitDuck
from .theory import ShortfallBound as ShortfallBound
from .theory import ShortfallProblems as ShortfallProblems
from .theory import ShortfallSearch as ShortfallSearch
from .thm3 import BNNAgreement as BNNAgreement
from .thm3 import BNNsAsENNs as BNNsAsENNs
from .thm3 import CounterExample as CounterExample
from .thm4 import EpinetOnData as EpinetOnData
from .thm4 import EpinetTraining as EpinetTraining
from .thm4 import LinearGaussianEpinet as LinearGaussianEpinet
