"""What a wrong prediction costs, and the bound on it (Theorem 2)."""

import jax.numpy as jnp
import jax.scipy.special as jsp
from jaxtyping import Array, Float

from ._checks import check_distribution
from ._choice import choice_probs
from ._rewards import expected_rewards


def joint_kl(joint_probs: Float[Array, "..."], predicted_probs: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Return $\mathrm{KL}(P_{1:\tau} \| \hat P_{1:\tau})$ in nats.

    It is infinite where the prediction excludes an outcome that can happen. Computed as the sum of
    $\hat p \, h(p / \hat p - 1)$ with $h(d) = (1 + d) \ln (1 + d) - d \ge 0$, which loses no digits where the
    distributions are close, and is never negative.

    Args:
        joint_probs: the true distribution $P_{1:\tau}$, of any shape.
        predicted_probs: the prediction $\hat P_{1:\tau}$, of the same shape.
    """
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
    r"""Return how much less than the optimum the agent earns that believes `predicted_probs`.

    The agent chooses uniformly among the actions that are best under its prediction; ties within `tolerance`.

    Args:
        rewards: $r(a, y_{1:\tau})$ between 0 and 1; the first axis is the action, then one axis per label.
        joint_probs: the true distribution $P_{1:\tau}$ of the labels.
        predicted_probs: the prediction $\hat P_{1:\tau}$.
        tolerance: how far below the largest predicted reward still counts as equal.
    """
    earned = expected_rewards(rewards, joint_probs)
    choice = choice_probs(expected_rewards(rewards, predicted_probs), tolerance=tolerance)
    return jnp.max(earned) - choice @ earned


def shortfall_bound(joint_probs: Float[Array, "..."], predicted_probs: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Return $\sqrt{2 \, \mathrm{KL}(P_{1:\tau} \| \hat P_{1:\tau})}$, which no shortfall exceeds (Theorem 2)."""
    return jnp.sqrt(2 * joint_kl(joint_probs, predicted_probs))
