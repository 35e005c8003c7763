"""Run an agent in a bandit as one compiled loop."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from .._checks import any_traced, check_function, check_positive
from .._keys import named_keys
from .._xla import jit_for_one_run, jit_unoptimized
from ._agent import AbstractBanditAgent, check_agent
from ._bandits import AbstractBandit
from ._learner import OnlineLearner


class BanditRun(eqx.Module):
    """The record of a run; `run_bandits` adds a leading axis of runs.

    Attributes:
        actions: the action of each step.
        rewards: the reward of each step.
        propensities: the probability with which the rule chose the action, given its indices; see `Decision`.
        regrets: expected reward of the best action minus that of the chosen one; NaN once the agent has failed.
        state: state of the agent after the last step.
    """

    actions: Int[Array, "*runs steps"]
    rewards: Float[Array, "*runs steps"]
    propensities: Float[Array, "*runs steps"]
    regrets: Float[Array, "*runs steps"]
    state: PyTree

    @property
    def regret(self) -> Float[Array, "*runs steps"]:
        """The regret curve: the sum of the regrets up to each step."""
        return jnp.cumsum(self.regrets, axis=-1)


def _prepare(
    agent: AbstractBanditAgent, environment: AbstractBandit, num_steps: int, key: PRNGKeyArray
) -> tuple[PyTree, PRNGKeyArray]:
    """Return the learner before the first step, without its agent and its count, and the key of the steps."""
    learner_key, loop_key = named_keys(key, "learner", "steps")
    shapes = eqx.filter_eval_shape(lambda key: environment.round(key=key), loop_key)
    learner = OnlineLearner.start(agent, shapes.inputs, capacity=num_steps, key=learner_key)
    return (learner.state, learner.key), loop_key


def _act(
    agent: AbstractBanditAgent, environment: AbstractBandit, num_steps: int, start: PyTree, key: PRNGKeyArray
) -> BanditRun:
    """Return the run of an agent from its first state: the online learner in a scan."""
    state, learner_key = start
    # The count is made here, and not an argument: runs side by side share it, and write to the same place.
    learner = OnlineLearner(agent, state, jnp.zeros((), jnp.int32), learner_key)
    # Leaves that are not arrays (activations, say) are constant, and a scan cannot carry them.
    arrays, static = eqx.partition(learner, eqx.is_array)

    def body(arrays: PyTree, step: Int[Array, ""]) -> tuple[PyTree, tuple[Array, ...]]:
        round_key, choice_key, reward_key = named_keys(jr.fold_in(key, step), "round", "choice", "reward")
        learner = eqx.combine(arrays, static)
        inputs, expected = environment.round(key=round_key)
        action, propensity, _ = learner.act(inputs, key=choice_key)
        reward = environment.reward(expected[action], key=reward_key)
        learner = learner.observe(jax.tree.map(lambda leaf: leaf[action], inputs), reward)
        regret = jnp.where(jnp.isnan(propensity), jnp.nan, jnp.max(expected) - expected[action])
        return eqx.filter(learner, eqx.is_array), (action, reward, propensity, regret)

    arrays, found = jax.lax.scan(body, arrays, jnp.arange(num_steps, dtype=jnp.int32))
    actions, rewards, propensities, regrets = found
    return BanditRun(actions, rewards, propensities, regrets, eqx.combine(arrays, static).state)


# Two programs: weights are drawn once, and optimizing that code took three times as long as compiling the loop.
_prepare_compiled = jit_unoptimized(_prepare)
_act_compiled = jit_for_one_run(_act)


def _checked(agent: AbstractBanditAgent, run: BanditRun) -> BanditRun:
    """Return the run, if the agent can learn from its rewards."""
    return eqx.tree_at(lambda run: run.rewards, run, agent.check_rewards(run.rewards))


def run_bandit(
    agent: AbstractBanditAgent, environment: AbstractBandit, *, num_steps: int, key: PRNGKeyArray
) -> BanditRun:
    """Let an agent act in an environment; the `regret` of the result is the regret curve.

    A pure function that loops on the device; it can be mapped or compiled into another program. For many runs at once
    see `run_bandits`. The randomness of step `t` depends on the key and `t` only.
    """
    check_agent(agent)
    if not isinstance(environment, AbstractBandit):
        raise ValueError(f"`environment` must be a bandit, such as `LinearBandit`; got {type(environment).__name__}.")
    check_positive("num_steps", num_steps)
    traced = any_traced((agent, environment, key))
    prepare, act = (_prepare, _act) if traced else (_prepare_compiled, _act_compiled)
    start, loop_key = prepare(agent, environment, num_steps, key)
    return _checked(agent, act(agent, environment, num_steps, start, loop_key))


def _prepare_all(
    agent: AbstractBanditAgent,
    environment: AbstractBandit | Callable[[PRNGKeyArray], AbstractBandit],
    num_steps: int,
    keys: Key[Array, " runs"],
) -> tuple[AbstractBandit | None, PyTree, Key[Array, " runs"]]:
    """Return the environment of each run, if each has its own, and the results of `_prepare`."""

    def one(key: PRNGKeyArray) -> tuple[AbstractBandit | None, PyTree, PRNGKeyArray]:
        environment_key, run_key = named_keys(key, "environment", "run")
        if isinstance(environment, AbstractBandit):
            return None, *_prepare(agent, environment, num_steps, run_key)
        own = environment(environment_key)
        return own, *_prepare(agent, own, num_steps, run_key)

    return eqx.filter_vmap(one)(keys)


def _act_all(
    agent: AbstractBanditAgent,
    shared: AbstractBandit | None,
    own: AbstractBandit | None,
    num_steps: int,
    starts: PyTree,
    keys: Key[Array, " runs"],
) -> BanditRun:
    """Return all runs, in one environment or each in its own."""

    def one(own: AbstractBandit | None, start: PyTree, key: PRNGKeyArray) -> BanditRun:
        environment = shared if own is None else own
        assert environment is not None
        return _act(agent, environment, num_steps, start, key)

    return eqx.filter_vmap(one)(own, starts, keys)


_prepare_all_compiled = jit_unoptimized(_prepare_all)
_act_all_compiled = jit_for_one_run(_act_all)


def run_bandits(
    agent: AbstractBanditAgent,
    environment: AbstractBandit | Callable[[PRNGKeyArray], AbstractBandit],
    *,
    num_steps: int,
    keys: Key[Array, " runs"],
) -> BanditRun:
    """Run an agent many times in one compiled program, for curves with error bars.

    Args:
        agent: the agent; each run has its own ENN, loss and randomness.
        environment: one environment for all runs, or a function that draws one per run from a key.
        num_steps: number of steps.
        keys: one random key per run; a run depends on its own key only.
    """
    check_agent(agent)
    if not isinstance(environment, AbstractBandit):
        check_function("environment", environment)
    check_positive("num_steps", num_steps)
    is_typed = isinstance(keys, Array) and jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    if not is_typed or keys.ndim != 1 or keys.shape[0] == 0:
        found = f"shape {keys.shape} of {keys.dtype}" if isinstance(keys, Array) else type(keys).__name__
        raise ValueError(f"`keys` must hold one key per run, as `jax.random.split` makes them; got {found}.")
    traced = any_traced((agent, environment, keys))
    prepare, act = (_prepare_all, _act_all) if traced else (_prepare_all_compiled, _act_all_compiled)
    own, starts, loop_keys = prepare(agent, environment, num_steps, keys)
    shared = environment if isinstance(environment, AbstractBandit) else None
    return _checked(agent, act(agent, shared, own, num_steps, starts, loop_keys))
