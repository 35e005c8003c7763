"""Decisions that are judged by a reward of several labels at once (Appendix B)."""

from ._bound import joint_kl as joint_kl
from ._bound import shortfall as shortfall
from ._bound import shortfall_bound as shortfall_bound
from ._choice import best_actions as best_actions
from ._choice import choice_probs as choice_probs
from ._choice import choose_action as choose_action
from ._rewards import expected_rewards as expected_rewards
from ._rewards import expected_rewards_from_samples as expected_rewards_from_samples
from ._rewards import sample_labels as sample_labels
