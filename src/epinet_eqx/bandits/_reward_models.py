"""Map outputs of an ENN to expected rewards, and rewards to training targets."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._checks import check_finite, is_traced, require


class AbstractRewardModel(eqx.Module):
    """Maps an output to an expected reward, and an observed reward to a training target."""

    @abc.abstractmethod
    def expected(self, output: Float[Array, " classes"]) -> Float[Array, ""]:
        """Return the expected reward at one input and one index."""

    @abc.abstractmethod
    def target(self, reward: Float[Array, ""]) -> Shaped[Array, ""]:
        """Return the training target for an observed reward."""

    @abc.abstractmethod
    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return observed rewards; raise if they are outside the model's support."""


class BernoulliReward(AbstractRewardModel):
    """Rewards of 0 and 1, as the classes of a binary classifier: the expected reward is the probability of class 1."""

    def expected(self, output: Float[Array, " classes"]) -> Float[Array, ""]:
        """Return the probability of success."""
        if output.shape[0] != 2:
            raise ValueError(f"`output` must have two classes for rewards of 0 and 1; got {output.shape[0]}.")
        return jax.nn.sigmoid(output[1] - output[0])

    def target(self, reward: Float[Array, ""]) -> Shaped[Array, ""]:
        """Return the class."""
        return reward.astype(jnp.int32)

    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return rewards, which must be 0 or 1."""
        failed = ~jnp.all((rewards == 0) | (rewards == 1))
        found = "" if is_traced(failed) else f"; got values from {float(jnp.min(rewards)):g} to {jnp.max(rewards):g}"
        return require(rewards, failed, f"`environment` must give rewards of 0 and 1 for a `BernoulliReward`{found}.")


class GaussianReward(AbstractRewardModel):
    """Any finite rewards, as regression targets: the expected reward is the output itself."""

    def expected(self, output: Float[Array, " classes"]) -> Float[Array, ""]:
        """Return the output."""
        if output.shape[0] != 1:
            raise ValueError(f"`output` must have one entry, the mean of the reward; got {output.shape[0]}.")
        return output[0]

    def target(self, reward: Float[Array, ""]) -> Shaped[Array, ""]:
        """Return the reward."""
        return reward

    def check_rewards(self, rewards: Float[Array, "*steps"]) -> Float[Array, "*steps"]:
        """Return rewards, which must be finite."""
        return check_finite("rewards of the environment", rewards)
