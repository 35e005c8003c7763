"""Online learning: act among candidates and observe the reward."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._checks import (
    Scalar,
    any_traced,
    as_number,
    as_real_array,
    check_finite,
    check_key,
    check_positive,
    check_shape,
    num_examples,
)
from .._keys import named_keys
from .._xla import jit_unoptimized
from ._agent import AbstractBanditAgent, check_agent
from ._rules import draw_action


class Decision(NamedTuple):
    """The choice and its probability: keep it with the reward, to evaluate other policies later.

    Attributes:
        action: the position of the chosen candidate.
        propensity: the probability with which the rule chose it, given the indices that it drew. One index makes every
            choice of Thompson sampling certain; `ThompsonSampling(100)` estimates how often each candidate is the best.
        probs: the probability of each candidate.
    """

    action: Int[Array, ""]
    propensity: Float[Array, ""]
    probs: Float[Array, " actions"]


class OnlineLearner(eqx.Module):
    """An agent with all that it has learned so far: `act` chooses, `observe` returns the learner one observation later.

    A pytree of arrays whose shapes never change, so `act` and `observe` compile once, however many observations
    follow, and `epinet_eqx.save` and `load` are its checkpoints. Update number `t` depends on the key and `t` only: a
    learner that is saved and loaded continues to the bit as it would have. `run_bandit` is this learner in a scan.

    Attributes:
        agent: how it predicts, chooses and learns; the same at all times.
        state: the state of its learner.
        count: number of observations so far.
        key: random key of all updates.
    """

    agent: AbstractBanditAgent
    state: PyTree
    count: Int[Array, ""]
    key: PRNGKeyArray

    @classmethod
    def start(
        cls, agent: AbstractBanditAgent, candidates: PyTree[Any], *, capacity: int = 10_000, key: PRNGKeyArray
    ) -> "OnlineLearner":
        """Return the learner before its first observation.

        Args:
            agent: how it predicts, chooses and learns.
            candidates: features of some candidates, for their shapes; a tree of arrays with a leading axis.
            capacity: number of latest observations to keep; fewer if the agent says so.
            key: random key of the initial ENN and of all updates.
        """
        check_agent(agent)
        check_positive("capacity", capacity)
        num_examples("candidates", candidates)
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), candidates)
        agent_key, learner_key = named_keys(key, "agent", "learner")
        init = _init if any_traced((agent, key)) else _init_compiled
        return cls(agent, init(agent, shapes, capacity, agent_key), jnp.zeros((), jnp.int32), learner_key)

    def act(self, candidates: PyTree[Array], *, key: PRNGKeyArray) -> Decision:
        """Choose one of the candidates; another number of them compiles once more.

        Args:
            candidates: features of each candidate, a tree of arrays with a leading axis.
            key: random key of the indices and of the choice.
        """
        num_examples("candidates", candidates)
        check_key("key", key)
        if any_traced((self, candidates, key)):
            return _act(self, candidates, key)
        decision = _act_compiled(self, _as_features("candidates", candidates), key)
        if jnp.isnan(decision.propensity):
            raise FloatingPointError(
                f"`learner` must predict finite rewards; an update met something not finite within {int(self.count)} "
                "observations. A smaller learning rate or smaller rewards may help."
            )
        return decision

    def observe(self, x: PyTree[Array], reward: Scalar) -> "OnlineLearner":
        """Return the learner after the candidate with features `x` was chosen and earned `reward`."""
        if isinstance(reward, Array | np.ndarray):
            check_shape("reward", reward, ())
        reward = as_number("reward", reward)
        if any_traced((self, x, reward)):
            return _observe(self, x, reward)
        return _observe_compiled(self, _as_features("x", x), self.agent.check_rewards(reward))


def _as_features(name: str, tree: PyTree) -> PyTree[Array]:
    """Return features as arrays of finite numbers."""
    return check_finite(name, jax.tree.map(lambda leaf: as_real_array(name, leaf), tree))


def _init(agent: AbstractBanditAgent, shapes: PyTree[Any], capacity: int, key: PRNGKeyArray) -> PyTree:
    return agent.init(shapes, capacity, key=key)


def _act(learner: OnlineLearner, candidates: PyTree[Array], key: PRNGKeyArray) -> Decision:
    policy_key, action_key = named_keys(key, "policy", "action")
    probs = learner.agent.policy(learner.state, candidates, key=policy_key)
    action = draw_action(probs, key=action_key)
    return Decision(action, probs[action], probs)


def _observe(learner: OnlineLearner, x: PyTree[Array], reward: Float[Array, ""]) -> OnlineLearner:
    key = jr.fold_in(learner.key, learner.count)
    state = learner.agent.observe(learner.state, learner.count, x, reward, key=key)
    return OnlineLearner(learner.agent, state, learner.count + 1, learner.key)


_init_compiled = jit_unoptimized(_init)
_act_compiled = eqx.filter_jit(_act)
_observe_compiled = eqx.filter_jit(_observe)
