"""The form of a bandit: inputs to choose from, and a reward of the one that was chosen."""

import abc
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


class Round(NamedTuple):
    """One decision.

    Attributes:
        inputs: what is known of each action, an array or a tree of arrays with a leading axis of actions: an ENN
            predicts the reward of an action from its entry.
        expected: expected reward of each action, which no agent sees.
    """

    inputs: PyTree[Array]
    expected: Float[Array, " actions"]


class AbstractBandit(eqx.Module):
    """An environment of decisions that do not influence one another, except by what is learned."""

    @abc.abstractmethod
    def round(self, *, key: PRNGKeyArray) -> Round:
        """Draw the next decision; every round has the same number of actions."""

    @abc.abstractmethod
    def reward(self, expected: Float[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Draw the reward of an action with this expected reward."""
