r"""Theorem 2: the shortfall of an agent with a wrong prediction against $\sqrt{2 \, \mathrm{KL}(P \| \hat P)}$.

How tight is the bound? Let the agent take the action $\hat a$ where $a_*$ is best, and let
$d(y) = r(a_*, y) - r(\hat a, y) \in [-1, 1]$. The shortfall is $s = E_P[d] > 0$, and $E_{\hat P}[d] \le 0$. Among all
such predictions the one nearest to $P$ is $\hat P(y) = P(y) / (1 + \lambda d(y))$, with divergence
$\max_\lambda E_P[\ln(1 + \lambda d)]$. The logarithm is concave, so for a given $s$ this is smallest if $d$ is $\pm 1$
only: a shortfall of $s$ needs at least
$$\mathrm{KL} \ge \tfrac{1 + s}{2} \ln(1 + s) + \tfrac{1 - s}{2} \ln(1 - s) = \tfrac{s^2}{2} + \tfrac{s^4}{12} + ...$$
nats, and some decision problem attains it. The bound of the theorem keeps the first term: it is tight for small
divergences, and too large by a factor of $\sqrt{2 \ln 2} = 1.18$ where the shortfall is 1, the most there can be.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.decisions import joint_kl, shortfall

from ..artifacts.thm2 import ShortfallProblems, ShortfallSearch
from ..record import Row

_BATCH = 500
_STREAMS = ("spread", "logits", "scale", "noise", "kind", "reward", "sharp")
_PREDICTIONS = ("perturbed", "independent", "product of marginals")


def _log_uniform(low: float, high: float, *, key: PRNGKeyArray) -> Float[Array, ""]:
    """Draw a number whose decimal logarithm is uniform."""
    return 10.0 ** jr.uniform(key, (), minval=low, maxval=high)


def _product_of_marginals(probs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the product of the marginals of a table of joint probabilities, Eq. (1)."""
    product = jnp.ones_like(probs)
    for axis in range(probs.ndim):
        others = tuple(other for other in range(probs.ndim) if other != axis)
        product = product * jnp.broadcast_to(jnp.sum(probs, axis=others, keepdims=True), probs.shape)
    return product


def draw_problem(
    config: ShortfallProblems, *, key: PRNGKeyArray
) -> tuple[Float[Array, "actions ..."], Float[Array, "..."], Float[Array, "..."], Array]:
    """Draw rewards, a distribution, a prediction of it, and which kind of prediction that is.

    Logarithms of probabilities are normal, with a spread of any size; predictions are perturbations of any size, or
    independent of the truth, or its product of marginals; rewards are uniform, or zero or one.
    """
    shape = (config.num_classes,) * config.tau
    size = config.num_classes**config.tau
    keys = dict(zip(_STREAMS, named_keys(key, *_STREAMS), strict=True))
    spread = _log_uniform(-1.0, 0.5, key=keys["spread"])
    logits, other = spread * jr.normal(keys["logits"], (2, size))
    truth = jax.nn.softmax(logits)
    noise = _log_uniform(-3.0, 0.5, key=keys["scale"]) * jr.normal(keys["noise"], (size,))
    predictions = [jax.nn.softmax(logits + noise), jax.nn.softmax(other)]
    if config.tau > 1:  # The product of one marginal is the truth itself.
        predictions.append(_product_of_marginals(truth.reshape(shape)).reshape(-1))
    kind = jr.randint(keys["kind"], (), 0, len(predictions))
    uniform = jr.uniform(keys["reward"], (config.num_actions, *shape))
    rewards = jnp.where(jr.bernoulli(keys["sharp"]), jnp.round(uniform), uniform)
    return rewards, truth.reshape(shape), jnp.stack(predictions)[kind].reshape(shape), kind


def random_problems(config: ShortfallProblems, *, key: PRNGKeyArray) -> list[Row]:
    """Return a summary of many random problems, and one by one the first of those that have a shortfall."""

    def outcome(number: Array) -> tuple[Array, Array, Array]:
        rewards, truth, prediction, kind = draw_problem(config, key=jr.fold_in(key, number))
        return joint_kl(truth, prediction), shortfall(rewards, truth, prediction, tolerance=0.0), kind

    numbers = jnp.arange(config.num_problems)
    outcomes = eqx.filter_jit(lambda numbers: jax.lax.map(outcome, numbers, batch_size=_BATCH))(numbers)
    kl, lost, kind = (np.asarray(values) for values in outcomes)
    bound = np.sqrt(2 * kl)
    fraction = lost / bound
    size = {"tau": config.tau, "num_classes": config.num_classes, "num_actions": config.num_actions}
    summary = {
        "kind": "summary",
        **size,
        "num_problems": config.num_problems,
        "num_above_bound": np.sum(lost > bound + 1e-6),
        "largest_excess": np.max(lost - bound),
        "largest_fraction": np.max(fraction),
        "mean_fraction": np.mean(fraction),
        "share_without_loss": np.mean(lost <= 0),
    }
    points = [
        {
            "kind": "problem",
            **size,
            "prediction": _PREDICTIONS[kind[i]],
            "kl": kl[i],
            "shortfall": lost[i],
        }
        for i in np.flatnonzero(lost > 0)[: config.num_points]
    ]
    return [summary, *points]


def _bisect(
    below: Callable[[Float[Array, ""]], Bool[Array, ""]], low: Float[Array, ""], high: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the point between `low` and `high` up to which `below` holds."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        return jax.lax.cond(below(middle), lambda: (middle, high), lambda: (low, middle))

    low, high = jax.lax.fori_loop(0, 40, halve, (low, high))
    return (low + high) / 2


def _problem(
    params: Float[Array, "2 outcomes"], target: Float[Array, ""]
) -> tuple[Float[Array, " outcomes"], Float[Array, " outcomes"]]:
    """Return a distribution and a difference of rewards whose expectation is `target`.

    An exponential tilt of the distribution sees to the expectation. One Newton step from the solution leaves it where
    it is and lets gradients through it.
    """
    logits, gain = params[0], jnp.tanh(params[1])

    def expectation(tilt: Float[Array, ""]) -> Float[Array, ""]:
        return jax.nn.softmax(logits + tilt * gain) @ gain

    limit = jnp.asarray(50.0)
    tilt = jax.lax.stop_gradient(_bisect(lambda tilt: expectation(tilt) < target, -limit, limit))
    slope = jax.lax.stop_gradient(jax.grad(expectation)(tilt))
    tilt = tilt - (expectation(tilt) - target) / slope
    return jax.nn.softmax(logits + tilt * gain), gain


def _flip(probs: Float[Array, " outcomes"], gain: Float[Array, " outcomes"]) -> Float[Array, ""]:
    r"""Return the root $\lambda$ of $E_P[d / (1 + \lambda d)]$, where $E_P[d]$ and some $-d$ are positive."""
    highest = 1.0 / jnp.max(-gain)
    return _bisect(lambda flip: jnp.sum(probs * gain / (1 + flip * gain)) > 0, jnp.zeros_like(highest), highest)


def _log_kl(params: Float[Array, "2 outcomes"], target: Float[Array, ""]) -> Float[Array, ""]:
    """Return the logarithm of the divergence of the nearest misleading prediction."""
    probs, gain = _problem(params, target)
    # It maximizes the divergence, so to first order it does not move with the parameters.
    flip = jax.lax.stop_gradient(_flip(probs, gain))
    return jnp.log(jnp.sum(probs * jnp.log1p(flip * gain)))


def _mislead(params: Float[Array, "2 outcomes"], target: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return divergence and shortfall of the problem with two actions and a prediction just beyond the tie."""
    probs, gain = _problem(params, target)
    flip = _flip(probs, gain)
    # A thousandth beyond the tie, but never beyond where a probability would change its sign.
    flip = jnp.minimum(1.001 * flip, (flip + 1 / jnp.max(-gain)) / 2)
    prediction = probs / (1 + flip * gain)
    prediction = prediction / jnp.sum(prediction)
    rewards = jnp.stack([(1 + gain) / 2, (1 - gain) / 2])
    return joint_kl(probs, prediction), shortfall(rewards, probs, prediction, tolerance=0.0)


def search(config: ShortfallSearch, *, key: PRNGKeyArray) -> list[Row]:
    """Return problems with given shortfalls before and after gradient descent on the divergence they take."""
    optimizer = optax.adam(0.1)

    def descend(start: Float[Array, "2 outcomes"], target: Float[Array, ""]) -> Float[Array, "2 outcomes"]:
        def step(carry: tuple[Array, optax.OptState], _: None) -> tuple[tuple[Array, optax.OptState], None]:
            params, state = carry
            gradient = jax.grad(_log_kl)(params, target)
            # optax multiplies its floating-point decay with an integer count, which strict promotion would refuse.
            with jax.numpy_dtype_promotion("standard"):
                updates, state = optimizer.update(gradient, state)
            return (params + updates, state), None  # pyright: ignore[reportOperatorIssue]

        (params, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=config.num_steps)
        return params

    targets = jnp.logspace(-2.0, jnp.log10(0.7), config.num_starts)
    starts = jr.normal(key, (config.num_starts, 2, config.num_outcomes)) * jnp.array([1.0, 2.0])[None, :, None]
    ends = eqx.filter_jit(jax.vmap(descend))(starts, targets)
    mislead = eqx.filter_jit(jax.vmap(_mislead))
    rows: list[Row] = []
    for stage, params in (("start of search", starts), ("end of search", ends)):
        kl, lost = (np.asarray(values) for values in mislead(params, targets))
        rows += [{"kind": stage, "kl": kl[i], "shortfall": lost[i]} for i in range(config.num_starts)]
    return rows


def run(config: ShortfallProblems | ShortfallSearch, *, key: PRNGKeyArray) -> list[Row]:
    """Run one unit."""
    if isinstance(config, ShortfallSearch):
        return search(config, key=key)
    return random_problems(config, key=key)
