"""Decisions: what joint predictions are for (Appendix B).

Everything is built on coherent samples, one index for all inputs. A bandit, with the same agent for every ENN:

```python
agent = ENNAgent(make_enn, CrossEntropy(l2=0.3), BernoulliReward(), ThompsonSampling())
runs = run_bandits(agent, lambda key: NeuralBandit.generate(10, 100, key=key), num_steps=1000, keys=jr.split(key, 20))
runs.regret  # 20 curves of 1000 steps, from one compiled program
```

Which labels of a pool to ask for, one by one or as a batch:

```python
asked = acquire(bald_scores(enn, pool, draws), 10)
asked = batch_bald(enn, pool, 10, draws, key=key).positions
```

And a set under a reward of the whole:

```python
labels = sample_labels(enn, candidates, draws, key=key)
choice = choose_set(any_success, labels, 3)
```
"""

from ._acquire import acquire as acquire
from ._acquire import balanced_start as balanced_start
from ._active_learning import Acquisition as Acquisition
from ._active_learning import ActiveRun as ActiveRun
from ._active_learning import at_random as at_random
from ._active_learning import by_batch_bald as by_batch_bald
from ._active_learning import by_score as by_score
from ._active_learning import run_active_learning as run_active_learning
from ._bandit import AbstractBandit as AbstractBandit
from ._bandit import Round as Round
from ._bandit_agent import AbstractBanditAgent as AbstractBanditAgent
from ._bandit_agent import ENNAgent as ENNAgent
from ._bandit_agent import LearnerState as LearnerState
from ._batch_bald import BatchChoice as BatchChoice
from ._batch_bald import batch_bald as batch_bald
from ._bound import joint_kl as joint_kl
from ._bound import shortfall as shortfall
from ._bound import shortfall_bound as shortfall_bound
from ._choice import best_actions as best_actions
from ._choice import choice_probs as choice_probs
from ._choice import choose_action as choose_action
from ._choose_set import SetChoice as SetChoice
from ._choose_set import any_success as any_success
from ._choose_set import as_independent as as_independent
from ._choose_set import choose_set as choose_set
from ._choose_set import set_reward as set_reward
from ._classification_bandit import ClassificationBandit as ClassificationBandit
from ._epig import epig_scores as epig_scores
from ._information_directed import ActionValue as ActionValue
from ._information_directed import InformationDirectedSampling as InformationDirectedSampling
from ._information_directed import action_values as action_values
from ._linear_bandit import LinearBandit as LinearBandit
from ._neural_bandit import NeuralBandit as NeuralBandit
from ._pool_learner import PoolLearner as PoolLearner
from ._replay import ReplayBuffer as ReplayBuffer
from ._reward_models import AbstractRewardModel as AbstractRewardModel
from ._reward_models import BernoulliReward as BernoulliReward
from ._reward_models import GaussianReward as GaussianReward
from ._rewards import expected_rewards as expected_rewards
from ._rewards import expected_rewards_from_samples as expected_rewards_from_samples
from ._rewards import sample_labels as sample_labels
from ._rules import AbstractRule as AbstractRule
from ._rules import EpsilonGreedy as EpsilonGreedy
from ._rules import Greedy as Greedy
from ._rules import ThompsonSampling as ThompsonSampling
from ._rules import UpperConfidenceBound as UpperConfidenceBound
from ._run_bandit import BanditRun as BanditRun
from ._run_bandit import run_bandit as run_bandit
from ._run_bandit import run_bandits as run_bandits
from ._scores import bald_scores as bald_scores
from ._scores import entropy_scores as entropy_scores
from ._scores import joint_loss_scores as joint_loss_scores
from ._scores import margin_scores as margin_scores
from ._scores import variance_scores as variance_scores
