"""The expected reward of each action (Appendix B), from a table of joint probabilities or from samples of it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._checks import num_examples
from .._draws import Draws
from .._enn import AbstractENN
from .._keys import named_keys
from ..predict import sample
from ._checks import check_actions, check_distribution, check_unit_interval

_CHUNK = 64


def expected_rewards(
    rewards: Float[Array, "actions ..."], joint_probs: Float[Array, "..."]
) -> Float[Array, " actions"]:
    r"""Return $\sum_{y_{1:\tau}} P(y_{1:\tau}) \, r(a, y_{1:\tau})$ for each action.

    Args:
        rewards: $r(a, y_{1:\tau})$ between 0 and 1; the first axis is the action, then one axis per label.
        joint_probs: the joint distribution of the labels, one axis per label: `jnp.exp` of `predict.joint_log_probs`.
    """
    check_actions("rewards", rewards)
    if joint_probs.shape != rewards.shape[1:]:
        raise ValueError(
            f"`joint_probs` must have the shape of `rewards` without its first axis, {rewards.shape[1:]}; "
            f"got {joint_probs.shape}."
        )
    rewards = check_unit_interval("rewards", rewards)
    joint_probs = check_distribution("joint_probs", joint_probs)
    return rewards.reshape(rewards.shape[0], -1) @ joint_probs.reshape(-1)


def sample_labels(enn: AbstractENN, x: PyTree[Array], draws: Draws, *, key: PRNGKeyArray) -> Int[Array, "samples tau"]:
    r"""Draw label combinations $y_{1:\tau}$ from the joint prediction of Eq. (2).

    Each combination has one index, which all its inputs share; given the index, the labels are independent.

    Args:
        enn: a classifier.
        x: the inputs $x_{1:\tau}$, along the leading axis.
        draws: the indices, one for each combination.
        key: random key of the labels.
    """
    num_examples("x", x)
    (label_key,) = named_keys(key, "labels")
    return jr.categorical(label_key, sample(enn, x, draws).outputs)


def expected_rewards_from_samples(
    reward_fn: Callable[[Int[Array, " tau"]], Float[Array, " actions"]], labels: Int[Array, "samples tau"]
) -> Float[Array, " actions"]:
    r"""Return the average reward of each action over sampled label combinations.

    The sum runs over chunks of samples, so the memory does not grow with their number.

    Args:
        reward_fn: maps one combination $y_{1:\tau}$ to the rewards, between 0 and 1, of all actions.
        labels: combinations, for instance from `sample_labels`.
    """
    if labels.ndim != 2 or labels.size == 0:
        raise ValueError(f"`labels` must have shape (samples, tau) and not be empty; got {labels.shape}.")
    rewards_of = jax.vmap(reward_fn)
    out = jax.eval_shape(reward_fn, labels[0])
    if len(out.shape) != 1 or out.shape[0] == 0:
        raise ValueError(f"`reward_fn` must return a vector with the reward of each action; got shape {out.shape}.")

    def total(chunk: Int[Array, "chunk tau"]) -> Float[Array, " actions"]:
        return jnp.sum(check_unit_interval("reward_fn(labels)", rewards_of(chunk)), axis=0)

    num_samples, tau = labels.shape
    split = num_samples - num_samples % _CHUNK
    chunks = labels[:split].reshape(-1, _CHUNK, tau)
    start = jnp.zeros(out.shape, out.dtype) if split == num_samples else total(labels[split:])
    summed, _ = jax.lax.scan(lambda so_far, chunk: (so_far + total(chunk), None), start, chunks)
    return summed / num_samples
