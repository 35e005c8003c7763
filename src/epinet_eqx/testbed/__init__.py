"""The Neural Testbed: problems with a known truth, agents, and how far their predictions are off (Section 5, App. F).

```python
problem = Problem.generate(find_setting("d10_lambda10_rho0.1_seed0"), key=problem_key)
enn = find_agent("epinet")(problem, agent_key)
kl = exact_kl(enn, problem, key=test_key)  # kl[1] is the marginal, kl[10] the joint divergence
```

Any function from a problem and a key to an ENN is an agent; it is scored in the same way:

```python
def my_agent(problem, key):
    init_key, fit_key = named_keys(key, "init", "fit")
    network = MLP(problem.knowledge.input_dim, problem.knowledge.num_classes, (20,), key=init_key)
    return fit(Deterministic(network), problem.data, CrossEntropy(l2=1e-3), num_steps=500, key=fit_key).enn
```
"""

from ._evaluate import evaluate as evaluate
from ._kl import closed_form_kl as closed_form_kl
from ._kl import count_nonfinite as count_nonfinite
from ._kl import exact_kl as exact_kl
from ._kl import given_kl as given_kl
from ._kl import sampled_kl as sampled_kl
from ._problem import GenerativeModel as GenerativeModel
from ._problem import JointBatches as JointBatches
from ._problem import PriorKnowledge as PriorKnowledge
from ._problem import Problem as Problem
from ._setting import Setting as Setting
from ._setting import find_setting as find_setting
from ._setting import settings as settings
from ._stacks import generate_problems as generate_problems
from ._stacks import problem_keys as problem_keys
from ._stacks import stack_problems as stack_problems
from ._stacks import take_member as take_member
from .agents import AGENTS as AGENTS
from .agents import AbstractAgent as AbstractAgent
from .agents import AbstractSGDAgent as AbstractSGDAgent
from .agents import Agent as Agent
from .agents import BayesAgent as BayesAgent
from .agents import BBBAgent as BBBAgent
from .agents import DropoutAgent as DropoutAgent
from .agents import EnsembleAgent as EnsembleAgent
from .agents import EnsemblePlusAgent as EnsemblePlusAgent
from .agents import EpinetAgent as EpinetAgent
from .agents import HypermodelAgent as HypermodelAgent
from .agents import MLPAgent as MLPAgent
from .agents import SGMCMCAgent as SGMCMCAgent
from .agents import TrainingPlan as TrainingPlan
from .agents import find_agent as find_agent
from .agents import train_agent as train_agent
from .agents import training_groups as training_groups
