"""Learn one ENN and act by another derived from it."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._enn import AbstractENN
from ._agent import AbstractBanditAgent, ENNAgent, LearnerState


class ActsThrough(AbstractBanditAgent):
    """Learns like `agent`, and acts by a view of the learned ENN.

    A conventional network with the joint predictions of a Pitman-Yor head, for instance: it is trained as ever, and its
    head says which actions are uncertain together.

    ```python
    field = FourierField(inputs, 10, length_scale=1.0, key=key)
    agent = ActsThrough(ENNAgent(make_network, CrossEntropy(), BernoulliReward(), ThompsonSampling()), OnMean(field))
    ```
    """

    agent: ENNAgent
    view: Callable[[AbstractENN], AbstractENN]

    def init(self, inputs: PyTree[Any], capacity: int, *, key: PRNGKeyArray) -> LearnerState:
        """Return the state of the agent before the first step."""
        return self.agent.init(inputs, capacity, key=key)

    def policy(self, state: LearnerState, inputs: PyTree[Array], *, key: PRNGKeyArray) -> Float[Array, " actions"]:
        """Return the rule's probability of each action, by samples of the view."""
        rewards = self.agent.sample_rewards(self.view(state.enn), inputs, key=key)
        return jnp.where(state.ok, self.agent.rule.probs(rewards), jnp.nan)

    def observe(
        self,
        state: LearnerState,
        step: Int[Array, ""],
        x: PyTree[Array],
        reward: Float[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> LearnerState:
        """Return the state of the agent after one more observation."""
        return self.agent.observe(state, step, x, reward, key=key)

    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return the rewards of a run; the agent must be able to learn from them."""
        return self.agent.check_rewards(rewards)
