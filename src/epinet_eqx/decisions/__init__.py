"""Decisions whose reward depends on several labels, which need joint predictions (Theorems 1 and 2, Appendix B).

A set under a reward of the whole, chosen by coherent samples, one index for all candidates:

```python
labels = sample_labels(enn, candidates, draws, key=key)
choice = choose_set(any_success, labels, 3)
```

Two responses to compare next, by coherent samples of a reward model, each at an index of its own:

```python
pair = thompson_duel(sample_values(reward, responses, draws))
```

The next design to try, a maximum of one sampled function over a box:

```python
x, value = maximize(SampledFunction(enn, enn.index.sample(key=z_key)), bounds, key=key)
```
"""

from ._botorch import botorch_model as botorch_model
from ._choose_set import Improvement as Improvement
from ._choose_set import SetChoice as SetChoice
from ._choose_set import any_success as any_success
from ._choose_set import as_independent as as_independent
from ._choose_set import choose_set as choose_set
from ._choose_set import holds_best as holds_best
from ._choose_set import largest_outcome as largest_outcome
from ._choose_set import set_reward as set_reward
from ._designs import ImprovementFunction as ImprovementFunction
from ._designs import Maximum as Maximum
from ._designs import SampledFunction as SampledFunction
from ._designs import maximize as maximize
from ._designs import with_input_gradients as with_input_gradients
from ._preferences import best_of_n as best_of_n
from ._preferences import infomax_duel as infomax_duel
from ._preferences import preference_probs as preference_probs
from ._preferences import thompson_duel as thompson_duel
from ._rewards import best_actions as best_actions
from ._rewards import choice_probs as choice_probs
from ._rewards import choose_action as choose_action
from ._rewards import expected_rewards as expected_rewards
from ._rewards import expected_rewards_from_samples as expected_rewards_from_samples
from ._rewards import joint_kl as joint_kl
from ._rewards import sample_labels as sample_labels
from ._rewards import shortfall as shortfall
from ._rewards import shortfall_bound as shortfall_bound
from ._values import expected_improvement as expected_improvement
from ._values import optimality_probs as optimality_probs
from ._values import quantile_values as quantile_values
from ._values import sample_values as sample_values
