"""Bandits: agents that learn an ENN, rules that act on its coherent samples, and their loop (Appendix B).

The same agent serves every ENN:

```python
agent = ENNAgent(make_enn, CrossEntropy(l2=0.3), BernoulliReward(), ThompsonSampling())
runs = run_bandits(agent, lambda key: NeuralBandit.generate(10, 100, key=key), num_steps=1000, keys=jr.split(key, 20))
runs.regret  # 20 curves of 1000 steps, from one compiled program
```

Outside of a simulation the same agent learns from what really happens:

```python
learner = OnlineLearner.start(agent, candidates, key=learner_key)
decision = learner.act(candidates, key=choice_key)
learner = learner.observe(candidates[decision.action], reward)
```
"""

from ._agent import AbstractBanditAgent as AbstractBanditAgent
from ._agent import ENNAgent as ENNAgent
from ._agent import LearnerState as LearnerState
from ._agent import ReplayBuffer as ReplayBuffer
from ._bandits import AbstractBandit as AbstractBandit
from ._bandits import ClassificationBandit as ClassificationBandit
from ._bandits import LinearBandit as LinearBandit
from ._bandits import NeuralBandit as NeuralBandit
from ._bandits import Round as Round
from ._learner import Decision as Decision
from ._learner import OnlineLearner as OnlineLearner
from ._reward_models import AbstractRewardModel as AbstractRewardModel
from ._reward_models import BernoulliReward as BernoulliReward
from ._reward_models import GaussianReward as GaussianReward
from ._rules import AbstractRule as AbstractRule
from ._rules import ActionValue as ActionValue
from ._rules import EpsilonGreedy as EpsilonGreedy
from ._rules import Greedy as Greedy
from ._rules import InformationDirectedSampling as InformationDirectedSampling
from ._rules import ThompsonSampling as ThompsonSampling
from ._rules import UpperConfidenceBound as UpperConfidenceBound
from ._rules import action_values as action_values
from ._run import BanditRun as BanditRun
from ._run import run_bandit as run_bandit
from ._run import run_bandits as run_bandits
