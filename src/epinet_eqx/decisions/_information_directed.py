"""Information-directed sampling: a step's regret against what it teaches about the best action."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_positive
from ._rules import AbstractRule, share_best


class ActionValue(NamedTuple):
    r"""What each action costs and teaches.

    Attributes:
        regret: $\Delta(a) = E[\max_b r_b] - E[r_a]$, the expected regret.
        information: $v(a) = \mathrm{Var}_{A^*}\left(E[r_a \mid A^*]\right)$, how much the expected reward of the action
            depends on which action $A^*$ is the best. For rewards from 0 to 1 it is at most half of what observing one
            tells about $A^*$, in nats.
    """

    regret: Float[Array, " actions"]
    information: Float[Array, " actions"]


def action_values(rewards: Float[Array, "samples actions"]) -> ActionValue:
    """Return what each action costs and teaches, over coherent samples of the rewards of all actions."""
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
    """Return squared regret over information: zero without regret, infinite for regret that teaches nothing."""
    taught = information > 0
    ratio = jnp.square(regret) / jnp.where(taught, information, 1.0)
    return jnp.where(regret <= 0, jnp.zeros_like(ratio), jnp.where(taught, ratio, jnp.inf))


class InformationDirectedSampling(AbstractRule):
    r"""Act by the smallest information ratio $(\pi^\top \Delta)^2 / \pi^\top v$ over distributions $\pi$ of the action.

    The variance-based rule of Russo and Van Roy (2018). It can choose an action that is never the best, if that tells
    which one is; Thompson sampling cannot. The minimum is attained by at most two actions, and in closed form for each
    pair of them. Where no action teaches anything, it is greedy.
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
        # The ratio of q times row and 1 - q times column is convex in q: its derivative vanishes at one place.
        inside = (change != 0) & (gain != 0)
        safe_change, safe_gain = jnp.where(inside, change, 1.0), jnp.where(inside, gain, 1.0)
        q = regret[None, :] / safe_change - 2 * information[None, :] / safe_gain
        # Otherwise the minimum is at an end, where the diagonal has it.
        q = jnp.where(inside, jnp.clip(q, 0.0, 1.0), 0.0)
        ratio = _ratio(regret[None, :] + q * change, information[None, :] + q * gain)
        row, column = jnp.divmod(jnp.argmin(ratio), num_actions)
        share, actions = q[row, column], jnp.arange(num_actions)
        mixture = share * (actions == row).astype(q.dtype) + (1 - share) * (actions == column).astype(q.dtype)
        chosen = jnp.where(jnp.isfinite(jnp.min(ratio)), mixture, share_best(-regret))
        return jnp.where(jnp.any(jnp.isnan(regret)), jnp.nan, chosen)
