"""Rules that turn sampled rewards of the actions into a distribution of the action."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import (
    Scalar,
    as_floats,
    as_real_array,
    check_finite,
    check_key,
    check_positive,
    check_share,
    is_traced,
)


def share_best(values: Float[Array, "*batch actions"]) -> Float[Array, "*batch actions"]:
    """Return probabilities that are equal for the largest values and zero for the others; NaN if a value is NaN."""
    best = (values == jnp.max(values, axis=-1, keepdims=True)).astype(values.dtype)
    shares = best / jnp.maximum(jnp.sum(best, axis=-1, keepdims=True), 1.0)
    # Explicit, because a compiled maximum need not propagate NaN.
    return jnp.where(jnp.any(jnp.isnan(values), axis=-1, keepdims=True), jnp.nan, shares)


def draw_action(probs: Float[Array, " actions"], *, key: PRNGKeyArray) -> Int[Array, ""]:
    """Draw an action from its probabilities."""
    return jr.categorical(key, jnp.log(probs))


class AbstractRule(eqx.Module):
    r"""A rule that maps coherent samples of the rewards to a probability of each action.

    Row $m$ of the samples holds the expected reward of *every* action at the same index $z_m$, so the rows carry the
    dependence between actions that joint predictions capture. A rule is a pure function and works with any ENN.
    """

    num_samples: eqx.AbstractVar[int]

    @abc.abstractmethod
    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return the probability of each action; ties are shared, and NaN among the rewards gives NaN."""

    def __call__(self, rewards: Float[Array, "samples actions"], *, key: PRNGKeyArray) -> Int[Array, ""]:
        """Draw an action.

        Args:
            rewards: expected reward of each action at sampled indices.
            key: random key of the choice.
        """
        check_key("key", key)
        if not is_traced(rewards):
            rewards = check_finite("rewards", as_floats("rewards", rewards))
        if rewards.ndim != 2 or rewards.size == 0:
            raise ValueError(f"`rewards` must have shape (samples, actions) and not be empty; got {rewards.shape}.")
        return draw_action(self.probs(rewards), key=key)


class ThompsonSampling(AbstractRule):
    """Act as if one sample were the truth: choose each action with the probability that it is the best.

    One fresh sample per decision is enough; more samples estimate the probabilities themselves.
    """

    num_samples: int = eqx.field(static=True)

    def __init__(self, num_samples: int = 1):
        """Initialize with the number of samples per decision."""
        check_positive("num_samples", num_samples)
        self.num_samples = num_samples

    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return the share of samples in which each action is the best."""
        return jnp.mean(share_best(rewards), axis=0)


class UpperConfidenceBound(AbstractRule):
    """Choose the action with the largest upper quantile of its samples."""

    quantile: Float[Array, ""]
    num_samples: int = eqx.field(static=True)

    def __init__(self, quantile: Scalar = 0.9, num_samples: int = 50):
        """Initialize with the quantile, an array so that sweeping it compiles once, and the number of samples."""
        check_positive("num_samples", num_samples)
        self.quantile = check_share("quantile", quantile)
        self.num_samples = num_samples

    def bounds(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return the quantile of the samples of each action."""
        return jnp.quantile(rewards, self.quantile, axis=0)

    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return one for the action with the largest quantile."""
        return share_best(self.bounds(rewards))


class Greedy(AbstractRule):
    """Choose the action with the largest mean: uses marginal predictions only."""

    num_samples: int = eqx.field(static=True)

    def __init__(self, num_samples: int = 50):
        """Initialize with the number of samples per decision."""
        check_positive("num_samples", num_samples)
        self.num_samples = num_samples

    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return one for the action with the largest mean."""
        return share_best(jnp.mean(rewards, axis=0))


class EpsilonGreedy(AbstractRule):
    r"""Act greedily, and uniformly with probability $\epsilon$: undirected exploration. 1 is uniform choice."""

    epsilon: Float[Array, ""]
    num_samples: int = eqx.field(static=True)

    def __init__(self, epsilon: Scalar = 0.05, num_samples: int = 50):
        r"""Initialize with $\epsilon$, an array so that sweeping it compiles once, and the number of samples."""
        check_positive("num_samples", num_samples)
        self.epsilon = check_share("epsilon", epsilon)
        self.num_samples = num_samples

    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return the mixture of the greedy and the uniform choice."""
        greedy = share_best(jnp.mean(rewards, axis=0))
        return (1 - self.epsilon) * greedy + self.epsilon / rewards.shape[1]


class ActionValue(NamedTuple):
    r"""Expected cost and information gain of each action.

    Attributes:
        regret: $\Delta(a) = E[\max_b r_b] - E[r_a]$, the expected regret.
        information: $v(a) = \mathrm{Var}_{A^*}\left(E[r_a \mid A^*]\right)$, how much the expected reward of the action
            depends on which action $A^*$ is the best. For rewards from 0 to 1 it is at most half of the mutual
            information, in nats, of an observed reward and $A^*$.
    """

    regret: Float[Array, " actions"]
    information: Float[Array, " actions"]


def action_values(rewards: Float[Array, "samples actions"]) -> ActionValue:
    """Estimate cost and information gain of each action from coherent samples of all rewards."""
    if not is_traced(rewards):
        rewards = check_finite("rewards", as_real_array("rewards", rewards))
        if rewards.ndim != 2 or rewards.size == 0:
            raise ValueError(f"`rewards` must have shape (samples, actions) and not be empty; got {rewards.shape}.")
    mean = jnp.mean(rewards, axis=0)
    best = share_best(rewards)
    optimal = jnp.mean(best, axis=0)
    deviation = best.T @ (rewards - mean[None, :]) / rewards.shape[0]
    # An action that is never the best has no share in the variance.
    weight = jnp.where(optimal > 0, 1 / jnp.where(optimal > 0, optimal, 1.0), 0.0)
    information = weight @ jnp.square(deviation)
    regret = jnp.maximum(jnp.mean(jnp.max(rewards, axis=1)) - mean, 0.0)
    return ActionValue(regret, information)


def _ratio(regret: Float[Array, "..."], information: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return squared regret over information: zero without regret, infinite for regret without information."""
    taught = information > 0
    ratio = jnp.square(regret) / jnp.where(taught, information, 1.0)
    return jnp.where(regret <= 0, jnp.zeros_like(ratio), jnp.where(taught, ratio, jnp.inf))


class InformationDirectedSampling(AbstractRule):
    r"""Act by the smallest information ratio $(\pi^\top \Delta)^2 / \pi^\top v$ over distributions $\pi$ of the action.

    The variance-based rule of Russo and Van Roy (2018). Unlike Thompson sampling it can choose an action that is never
    the best because it reveals which one is. At most two actions attain the minimum, which is a closed form for each
    pair. If no action is informative, the rule is greedy.
    """

    num_samples: int = eqx.field(static=True)

    def __init__(self, num_samples: int = 100):
        """Initialize with the number of samples per decision."""
        check_positive("num_samples", num_samples)
        self.num_samples = num_samples

    def probs(self, rewards: Float[Array, "samples actions"]) -> Float[Array, " actions"]:
        """Return the distribution with the smallest information ratio."""
        num_actions = rewards.shape[1]
        regret, information = action_values(rewards)
        change, gain = regret[:, None] - regret[None, :], information[:, None] - information[None, :]
        # The ratio for q * row + (1 - q) * column is convex in q; its derivative vanishes at one point.
        inside = (change != 0) & (gain != 0)
        safe_change, safe_gain = jnp.where(inside, change, 1.0), jnp.where(inside, gain, 1.0)
        q = regret[None, :] / safe_change - 2 * information[None, :] / safe_gain
        # Otherwise the minimum is at an end point, which the diagonal covers.
        q = jnp.where(inside, jnp.clip(q, 0.0, 1.0), 0.0)
        ratio = _ratio(regret[None, :] + q * change, information[None, :] + q * gain)
        row, column = jnp.divmod(jnp.argmin(ratio), num_actions)
        share, actions = q[row, column], jnp.arange(num_actions)
        mixture = share * (actions == row).astype(q.dtype) + (1 - share) * (actions == column).astype(q.dtype)
        chosen = jnp.where(jnp.isfinite(jnp.min(ratio)), mixture, share_best(-regret))
        return jnp.where(jnp.any(jnp.isnan(regret)), jnp.nan, chosen)
