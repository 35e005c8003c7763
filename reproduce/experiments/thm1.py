r"""Theorem 1: a decision problem in which exact marginals earn no more than a random guess.

All $\tau$ labels of the one input are equal, and $\pm 1$ with equal probability. An action is a vector of $\tau$ signs;
its reward is $1 - (\sum_t a_t y_t / \tau)^2$. Whoever knows that the labels agree picks a vector whose signs cancel.

For odd $\tau$ signs cannot cancel: $|\sum_t a_t| \ge 1$, so the best action earns $1 - 1/\tau^2$, not the 1 of the
theorem. With the reward divided by that, $r' = (\tau^2 - s^2) / (\tau^2 - 1)$ for $s = \sum_t a_t y_t$, it stays within
$[0, 1]$, the best action earns 1, and the marginal agent as much as a random guess, $\tau / (\tau + 1)$: this is the
extension that the proof leaves to the reader. Both rewards are computed here. At $\tau = 1$ no decision problem can do:
a single marginal is the joint prediction.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, named_keys, predict
from epinet_eqx.decisions import (
    choice_probs,
    choose_action,
    expected_rewards,
    expected_rewards_from_samples,
    sample_labels,
)
from epinet_eqx.indices import GaussianIndex

from ..artifacts.thm1 import MarginalsInsufficientRun
from ..closed_forms import largest_reward
from ..record import Row
from .rabbit_duck import Ambiguous, Insufficient, SignIndex, drawings

_BATCH = 100


def sign_vectors(tau: int) -> Float[Array, "vectors tau"]:
    """Return all vectors of `tau` signs, in the order in which a table of labels lists its cells."""
    classes = jnp.stack(jnp.meshgrid(*([jnp.arange(2)] * tau), indexing="ij"), axis=-1).reshape(-1, tau)
    return as_signs(classes)


def as_signs(labels: Int[Array, "*batch tau"]) -> Float[Array, "*batch tau"]:
    """Return classes 0 and 1 as signs."""
    return 2.0 * labels.astype(float) - 1.0


@eqx.filter_jit
def _exact(enn: AbstractENN, marginal: AbstractENN, tau: int) -> dict[str, Float[Array, ""]]:
    """Return what each agent earns, by enumeration of all actions and labels."""
    vectors = sign_vectors(tau)
    rewards = (tau**2 - jnp.square(vectors @ vectors.T)) / tau**2
    rewards = rewards.reshape(-1, *[2] * tau)
    joint_probs = jnp.exp(predict.joint_log_probs(enn, drawings(tau), Draws.all(enn.index)))
    marginal_probs = jnp.exp(predict.joint_log_probs(marginal, drawings(tau), Draws.all(marginal.index)))
    earned = expected_rewards(rewards, joint_probs)
    return {
        "joint": choice_probs(earned) @ earned,
        "marginal": choice_probs(expected_rewards(rewards, marginal_probs)) @ earned,
        "random": jnp.mean(earned),
    }


@eqx.filter_jit
def _labels(enn: AbstractENN, tau: int, num_samples: int, *, key: PRNGKeyArray) -> Int[Array, "samples tau"]:
    """Draw combinations of labels from the joint prediction."""
    (index_key,) = named_keys(key, "index")
    return sample_labels(enn, drawings(tau), Draws.sample(enn.index, num_samples, key=index_key), key=key)


def _monte_carlo(
    enn: AbstractENN, marginal: AbstractENN, config: MarginalsInsufficientRun, *, key: PRNGKeyArray
) -> dict[str, Float[Array, " replicas"]]:
    """Return the rewards of agents that decide from sampled labels, many times and each time on fresh ones."""
    tau = config.tau
    vectors = sign_vectors(tau)

    def reward_fn(labels: Int[Array, " tau"]) -> Float[Array, " actions"]:
        return (tau**2 - jnp.square(vectors @ as_signs(labels))) / tau**2

    def act(agent: AbstractENN, key: PRNGKeyArray) -> Int[Array, ""]:
        label_key, choice_key = named_keys(key, "labels", "choice")
        labels = _labels(agent, tau, config.num_samples, key=label_key)
        return choose_action(expected_rewards_from_samples(reward_fn, labels), key=choice_key)

    def replica(replica_key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        world_key, joint_key, marginal_key, guess_key = named_keys(replica_key, "world", "joint", "marginal", "random")
        rewards = reward_fn(_labels(enn, tau, 1, key=world_key)[0])
        return {
            "joint": rewards[act(enn, joint_key)],
            "marginal": rewards[act(marginal, marginal_key)],
            "random": rewards[jr.randint(guess_key, (), 0, len(vectors))],
        }

    return jax.lax.map(replica, jr.split(key, config.num_replicas), batch_size=_BATCH)


def decide(config: MarginalsInsufficientRun, *, key: PRNGKeyArray) -> list[Row]:
    """Return what each agent earns under both rewards, exactly and by Monte Carlo.

    The marginal agent has a conventional network with the exact marginals, whose joint prediction is Eq. (1).
    """
    gap = jnp.asarray(config.logit_gap)
    world = Insufficient(logit_gap=gap, index=SignIndex())
    logits = predict.marginal_log_probs(world, drawings(1), Draws.all(world.index))[0]
    exact = _exact(world, Ambiguous(logits=logits, index=SignIndex()), config.tau)
    index = GaussianIndex(1)
    agents = Insufficient(logit_gap=gap, index=index), Ambiguous(logits=logits, index=index)
    sampled = _monte_carlo(*agents, config, key=key)
    rows: list[Row] = []
    for reward, unit in (("paper", 1.0), ("scaled", largest_reward(config.tau))):
        for agent, values in jax.device_get(sampled).items():
            rows.append(
                {
                    "tau": config.tau,
                    "reward": reward,
                    "agent": agent,
                    "exact": exact[agent].item() / unit,
                    "monte_carlo": np.mean(values).item() / unit,
                    "standard_error": np.std(values, ddof=1).item() / config.num_replicas**0.5 / unit,
                    "num_samples": config.num_samples,
                    "num_replicas": config.num_replicas,
                }
            )
    return rows
