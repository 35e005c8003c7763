"""Rewards of joint outcomes: expectation, optimal action, and the cost of a wrong prediction (Theorems 1 and 2)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.special as jsp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from .._checks import Scalar, as_real_array, check_finite, check_key, check_scalar, is_traced, num_examples, require
from .._draws import Draws
from .._enn import AbstractENN
from .._keys import named_keys
from ..predict import sample


def _found(values: Float[Array, "..."], wrong: Bool[Array, ""]) -> str:
    """Return the range of the values for a message, or nothing while they are traced."""
    return "" if is_traced(wrong) else f"; got values from {float(jnp.min(values)):g} to {float(jnp.max(values)):g}"


def check_distribution(name: str, probs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `probs`, which must be a table of at least one non-negative number that add up to one."""
    if probs.size == 0:
        raise ValueError(f"`{name}` must not be empty; got shape {probs.shape}.")
    wrong = ~jnp.all(probs >= 0)
    probs = require(probs, wrong, f"`{name}` must not be negative{_found(probs, wrong)}.")
    total = jnp.sum(probs)
    # A table of ten binary labels, averaged over samples in single precision, is off by less than a thousandth.
    wrong = ~(jnp.abs(total - 1) <= 1e-3)
    found = "" if is_traced(wrong) else f"; got a sum of {float(total):g}"
    return require(probs, wrong, f"`{name}` must add up to one{found}.")


def check_actions(name: str, values: Float[Array, "actions ..."]) -> Float[Array, "actions ..."]:
    """Return `values` as floating-point numbers, whose leading axis must hold at least one action."""
    values = as_real_array(name, values)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(float)
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"`{name}` must hold at least one action along its first axis; got shape {values.shape}.")
    return values


_CHUNK = 64


def expected_rewards(
    rewards: Float[Array, "actions ..."], joint_probs: Float[Array, "..."]
) -> Float[Array, " actions"]:
    r"""Return $\sum_{y_{1:\tau}} P(y_{1:\tau}) \, r(a, y_{1:\tau})$ for each action.

    Args:
        rewards: $r(a, y_{1:\tau})$; the first axis is the action, then one axis per label.
        joint_probs: the joint distribution of the labels, one axis per label: `jnp.exp` of `predict.joint_log_probs`.
    """
    rewards = check_actions("rewards", rewards)
    joint_probs = as_real_array("joint_probs", joint_probs)
    if joint_probs.shape != rewards.shape[1:]:
        raise ValueError(
            f"`joint_probs` must have the shape of `rewards` without its first axis, {rewards.shape[1:]}; "
            f"got {joint_probs.shape}."
        )
    rewards = check_finite("rewards", rewards)
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
        reward_fn: maps one combination $y_{1:\tau}$ to the rewards of all actions.
        labels: combinations, for instance from `sample_labels`.
    """
    if labels.ndim != 2 or labels.size == 0:
        raise ValueError(f"`labels` must have shape (samples, tau) and not be empty; got {labels.shape}.")
    rewards_of = jax.vmap(reward_fn)
    out = jax.eval_shape(reward_fn, labels[0])
    if len(out.shape) != 1 or out.shape[0] == 0:
        raise ValueError(f"`reward_fn` must return a vector with the reward of each action; got shape {out.shape}.")

    def total(chunk: Int[Array, "chunk tau"]) -> Float[Array, " actions"]:
        return jnp.sum(rewards_of(chunk), axis=0)

    num_samples, tau = labels.shape
    split = num_samples - num_samples % _CHUNK
    chunks = labels[:split].reshape(-1, _CHUNK, tau)
    start = jnp.zeros(out.shape, out.dtype) if split == num_samples else total(labels[split:])
    summed, _ = jax.lax.scan(lambda so_far, chunk: (so_far + total(chunk), None), start, chunks)
    # A sum is finite only if every reward is.
    return check_finite("reward_fn(labels)", summed / num_samples)


def _as_vector(expected: Float[Array, " actions"]) -> Float[Array, " actions"]:
    """Return expected rewards as floating-point numbers, one for each action."""
    expected = check_actions("expected", expected)
    if expected.ndim != 1:
        raise ValueError(f"`expected` must hold one number per action; got shape {expected.shape}.")
    return expected


def best_actions(expected: Float[Array, " actions"], *, tolerance: float = 1e-5) -> Bool[Array, " actions"]:
    """Return which actions have the largest expected reward.

    Args:
        expected: expected reward of each action.
        tolerance: differences up to this count as ties, so that rounding does not break them.
    """
    expected = check_finite("expected", _as_vector(expected))
    if not tolerance >= 0:
        raise ValueError(f"`tolerance` must be at least 0; got {tolerance}.")
    return expected >= jnp.max(expected) - tolerance


def choice_probs(expected: Float[Array, " actions"], *, tolerance: float = 1e-5) -> Float[Array, " actions"]:
    """Return the probability of each action under the uniform choice among the best ones, as in Theorem 1."""
    expected = _as_vector(expected)
    best = best_actions(expected, tolerance=tolerance).astype(expected.dtype)
    return best / jnp.sum(best)


def choose_action(expected: Float[Array, " actions"], *, tolerance: float = 1e-5, key: PRNGKeyArray) -> Int[Array, ""]:
    """Draw one action uniformly from the best ones."""
    check_key("key", key)
    expected = _as_vector(expected)
    best = best_actions(expected, tolerance=tolerance)
    return jr.categorical(key, jnp.where(best, jnp.zeros_like(expected), -jnp.inf))


def joint_kl(joint_probs: Float[Array, "..."], predicted_probs: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Return $\mathrm{KL}(P_{1:\tau} \| \hat P_{1:\tau})$ in nats.

    It is infinite where the prediction excludes an outcome that can happen. Computed as the sum of
    $\hat p \, h(p / \hat p - 1)$ with $h(d) = (1 + d) \ln (1 + d) - d \ge 0$, which loses no digits where the
    distributions are close, and is never negative.

    Args:
        joint_probs: the true distribution $P_{1:\tau}$, of any shape.
        predicted_probs: the prediction $\hat P_{1:\tau}$, of the same shape.
    """
    joint_probs = as_real_array("joint_probs", joint_probs)
    predicted_probs = as_real_array("predicted_probs", predicted_probs)
    if joint_probs.shape != predicted_probs.shape:
        raise ValueError(
            f"`predicted_probs` must have the shape of `joint_probs`, {joint_probs.shape}; got {predicted_probs.shape}."
        )
    p = check_distribution("joint_probs", joint_probs)
    q = check_distribution("predicted_probs", predicted_probs)
    possible = q > 0
    safe_q = jnp.where(possible, q, 1.0)
    d = jnp.where(possible, p - q, 0.0) / safe_q
    near = jnp.abs(d) < 0.01
    d_near = jnp.where(near, d, 0.0)
    series = d_near**2 * (1 / 2 - d_near / 6 + d_near**2 / 12 - d_near**3 / 20)
    h = jnp.where(near, series, jsp.xlogy(p / safe_q, p / safe_q) - d)
    return jnp.sum(jnp.where(possible, q * h, jnp.where(p > 0, jnp.inf, 0.0)))


def shortfall(
    rewards: Float[Array, "actions ..."],
    joint_probs: Float[Array, "..."],
    predicted_probs: Float[Array, "..."],
    *,
    tolerance: float = 1e-5,
) -> Float[Array, ""]:
    r"""Return the shortfall from the optimum of an agent that acts on `predicted_probs`.

    The agent chooses uniformly among the actions that are best under its prediction; ties within `tolerance`.

    Args:
        rewards: $r(a, y_{1:\tau})$; the first axis is the action, then one axis per label.
        joint_probs: the true distribution $P_{1:\tau}$ of the labels.
        predicted_probs: the prediction $\hat P_{1:\tau}$.
        tolerance: predicted rewards this close to the largest count as ties.
    """
    earned = expected_rewards(rewards, joint_probs)
    choice = choice_probs(expected_rewards(rewards, predicted_probs), tolerance=tolerance)
    return jnp.max(earned) - choice @ earned


def shortfall_bound(
    joint_probs: Float[Array, "..."], predicted_probs: Float[Array, "..."], *, width: Scalar = 1.0
) -> Float[Array, ""]:
    r"""Return $w \sqrt{2 \, \mathrm{KL}(P_{1:\tau} \| \hat P_{1:\tau})}$, a bound on every shortfall (Theorem 2).

    Args:
        joint_probs: the true distribution $P_{1:\tau}$ of the labels.
        predicted_probs: the prediction $\hat P_{1:\tau}$.
        width: $w$, the largest reward minus the smallest: 1 for rewards between 0 and 1, the case of the theorem.
    """
    width = check_scalar("width", width, minimum=0.0)
    return width * jnp.sqrt(2 * joint_kl(joint_probs, predicted_probs))
