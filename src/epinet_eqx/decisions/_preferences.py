"""Which two responses to compare next, and which one to return: decisions on joint samples of rewards."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._values import check_values


def _check_rewards(rewards: Float[Array, "samples responses"], num_samples: int) -> Float[Array, "samples responses"]:
    """Return joint samples of enough rewards for a duel."""
    rewards = check_values(rewards, "rewards")
    if rewards.shape[0] < num_samples or rewards.shape[1] < 2:
        raise ValueError(
            f"`rewards` must hold at least {num_samples} samples of at least 2 responses; got shape {rewards.shape}."
        )
    return rewards


def preference_probs(rewards: Float[Array, "samples responses"]) -> Float[Array, "responses responses"]:
    r"""Return the probability that the response of the row is preferred to that of the column.

    It is the mean over samples of $\mathrm{sigmoid}(r_a - r_b)$, the marginal prediction of a comparison.

    Args:
        rewards: joint samples of the rewards of all responses, such as those of `sample_values`.
    """
    rewards = check_values(rewards, "rewards")
    return jax.lax.map(lambda own: jnp.mean(jax.nn.sigmoid(own[:, None] - rewards), axis=0), rewards.T)


def thompson_duel(rewards: Float[Array, "samples responses"]) -> Int[Array, "2"]:
    """Return two responses to compare: each is the best at an index of its own (double Thompson sampling).

    The first is the best response of the first sample, the second that of the next sample that has another best one.
    If none has, it is the runner-up of the last sample.

    Args:
        rewards: joint samples of the rewards: in each, one index for *all* responses. With a new index for each
            response, the largest of many errors wins, however alike the responses are.
    """
    rewards = _check_rewards(rewards, 2)
    best = jnp.argmax(rewards, axis=1)
    first, later = best[0], best[1:]
    differs = later != first
    runner_up = jnp.argmax(rewards[-1].at[first].set(-jnp.inf))
    return jnp.stack([first, jnp.where(jnp.any(differs), later[jnp.argmax(differs)], runner_up)])


def infomax_duel(rewards: Float[Array, "samples responses"]) -> Int[Array, "2"]:
    r"""Return the two responses whose comparison is the most uncertain by ignorance.

    It is the pair with the largest variance over the samples of $\mathrm{sigmoid}(r_a - r_b)$: noise of the choice,
    which no label removes, does not count.

    Args:
        rewards: joint samples of the rewards: in each, one index for *all* responses.
    """
    rewards = _check_rewards(rewards, 1)
    num_responses = rewards.shape[1]

    def variances(number: Int[Array, ""]) -> Float[Array, " responses"]:
        # A response is not compared with itself, even where no comparison is uncertain.
        own = jnp.var(jax.nn.sigmoid(rewards[:, number][:, None] - rewards), axis=0)
        return own.at[number].set(-1.0)

    found = jax.lax.map(variances, jnp.arange(num_responses))
    return jnp.stack(jnp.divmod(jnp.argmax(found), num_responses))


def best_of_n(rewards: Float[Array, "samples responses"]) -> Int[Array, ""]:
    """Return the response with the largest expected reward: what to answer once exploration is over."""
    return jnp.argmax(jnp.mean(check_values(rewards, "rewards"), axis=0))
