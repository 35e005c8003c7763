"""The interface of an agent: from a problem to an ENN (Section 5)."""

import abc
from collections.abc import Callable, Hashable
from typing import ClassVar

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from ..._checks import num_examples
from ..._enn import AbstractENN
from ..._stack import stack
from .._problem import Problem
from .._stacks import num_stacked_problems, padded_size, stack_problems, take_member

Agent = Callable[[Problem, PRNGKeyArray], AbstractENN]
"""Any function from a problem and a key to an ENN is an agent."""


class AbstractAgent(abc.ABC):
    """An agent of the testbed: a configuration that knows how to train many problems in one compiled program.

    An agent sees the training data and the prior knowledge of a problem, never its true model. A subclass is a frozen
    dataclass of hyperparameters; variants are made by `dataclasses.replace`.

    Attributes:
        description: a few words, for Table 1.
        hyperparameters: the tuned ones, for Table 1.
    """

    description: ClassVar[str]
    hyperparameters: ClassVar[str]

    @abc.abstractmethod
    def train(self, problems: Problem, *, keys: Key[Array, " problems"]) -> AbstractENN:
        """Return the trained ENNs of a stack of problems of one `group`, as one module with a leading axis.

        Each depends on its own problem and key only, not on the rest of the stack or on the padding. The parameters of
        an ENN whose training met something that is not finite are all NaN.
        """

    @abc.abstractmethod
    def group(self, input_dim: int, num_train: int) -> Hashable:
        """Return the key by which problems are grouped: those of a stack must agree in it."""

    def __call__(self, problem: Problem, key: PRNGKeyArray) -> AbstractENN:
        """Return the ENN trained on one problem."""
        known, length = problem.knowledge, num_examples("data", problem.data)
        # Padded as in a larger stack, so that most problems of an input dimension share a program.
        problems = stack_problems([problem], pad_to=max(length, padded_size(known.input_dim, int(known.num_train))))
        return take_member(self.train(problems, keys=jr.clone(key)[None]), 0)


def check_group(agent: AbstractAgent, problems: Problem) -> None:
    """Raise unless an agent can train these problems as one stack."""
    sizes = sorted({int(size) for size in np.asarray(problems.knowledge.num_train)})
    groups = {agent.group(problems.knowledge.input_dim, size) for size in sizes}
    if len(groups) > 1:
        raise ValueError(
            f"`problems` must be of one group of {type(agent).__name__}, as `training_groups` makes them; "
            f"got {len(groups)} groups, with {sizes} training examples."
        )


def train_agent(agent: Agent, problems: Problem, *, keys: Key[Array, " problems"]) -> AbstractENN:
    """Return the ENNs of an agent on a stack of problems, as one module with a leading axis on every array.

    The agents of this package train all problems in one compiled program; any other function is called for one problem
    after another, without padding.

    Args:
        agent: the agent.
        problems: a stack of problems, of one group for an agent of this package.
        keys: one random key per problem.
    """
    members = num_stacked_problems(problems)
    if keys.shape != (members,):
        raise ValueError(f"`keys` must hold one key per problem, {members}; got shape {keys.shape}.")
    if isinstance(agent, AbstractAgent):
        check_group(agent, problems)
        return agent.train(problems, keys=keys)
    enns = []
    for number in range(members):
        enn = agent(take_member(problems, number).trimmed(), jr.clone(keys)[number])
        if not isinstance(enn, AbstractENN):
            raise TypeError(f"`agent` must return an ENN (`bayes.as_enn` may help); got {type(enn).__name__}.")
        enns.append(enn)
    return stack("agent(problem, key)", enns)
