"""The agents of the Neural Testbed (Table 1, Appendix F.2 and F.3)."""

from ._agent import AbstractAgent as AbstractAgent
from ._agent import Agent as Agent
from ._agent import train_agent as train_agent
from ._baselines import BBBAgent as BBBAgent
from ._baselines import DropoutAgent as DropoutAgent
from ._baselines import EnsembleAgent as EnsembleAgent
from ._baselines import EnsemblePlusAgent as EnsemblePlusAgent
from ._baselines import HypermodelAgent as HypermodelAgent
from ._baselines import MLPAgent as MLPAgent
from ._bayes import BayesAgent as BayesAgent
from ._epinet import EpinetAgent as EpinetAgent
from ._registry import AGENTS as AGENTS
from ._registry import find_agent as find_agent
from ._registry import training_groups as training_groups
from ._sgd import AbstractSGDAgent as AbstractSGDAgent
from ._sgd import TrainingPlan as TrainingPlan
from ._sgmcmc import SGMCMCAgent as SGMCMCAgent
