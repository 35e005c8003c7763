"""Fit temperature, `alpha` and length scale to held-out labels."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from .._checks import check_finite, check_positive, check_scalar
from .._draws import Draws, map_batches
from .._examples import check_examples, read_labels
from .._tree import unwrap
from ..metrics import Estimate
from ._head import PitmanYor, check_head
from ._losses import anchor_loss
from ._parts import ConstantAlpha, LogisticAlpha
from ._reach import check_length_scales, choose_length_scale
from ._urn import MIN_ALPHA, counts_log_prob

# Pairs of inputs that each fitted number needs.
_PAIRS_PER_PARAMETER = 20
_MAX_STEPS = 100
# Number of inputs whose sums over clusters are in memory together.
_BATCH_SIZE = 256
# Memory grows with the square of the number of labels of an input.
_MAX_COUNT = 500
# Below this, `alpha` is at its lower end for all practical purposes.
_LOWER_END = 0.005


class Calibrated(eqx.Module):
    """A head with fitted parameters, and the losses of the fit on its own data.

    Attributes:
        enn: the head with the fitted parameters.
        temperature: the fitted temperature.
        temperature_error: its standard error, over pairs of inputs.
        alpha: the fitted aleatoric share; its mean over the inputs where it is a function of features.
        alpha_error: its standard error, over pairs of inputs; infinite where the data do not identify `alpha`.
        marginal: mean log-loss of a single label, one value per pair of inputs.
        joint: log-loss of all labels of a pair of inputs, in total nats.
        marginal_before: the same for the head as it was given.
        joint_before: likewise.
        length_scale: the length scale, chosen if there were draws.
        gain: what joint predictions of near inputs gain over taking them as independent, at that length scale, in nats
            per pair: below 0, if indices are too few or no length scale knows more. None without draws.
        is_identified: whether the labels say what `alpha` is. Where no input has two different labels, the smallest
            `alpha` is the best: the labels hold no evidence about whether a second one would differ.
        is_held: whether `alpha` is that of the head as it was given; its error is then infinite.
    """

    enn: PitmanYor
    temperature: Float[Array, ""]
    temperature_error: Float[Array, ""]
    alpha: Float[Array, ""]
    alpha_error: Float[Array, ""]
    marginal: Estimate
    joint: Estimate
    marginal_before: Estimate
    joint_before: Estimate
    length_scale: Float[Array, ""]
    gain: Estimate | None
    is_identified: bool = eqx.field(static=True)
    is_held: bool = eqx.field(static=True)

    def __str__(self) -> str:
        lines = [
            f"temperature {self.temperature:.4g} ± {self.temperature_error:.2g}",
            f"alpha {self.alpha:.4g}, as given" if self.is_held else f"alpha {self.alpha:.4g} ± {self.alpha_error:.2g}",
            f"marginal log-loss {self.marginal.mean:.4g}, before {self.marginal_before.mean:.4g}",
            f"joint log-loss {self.joint.mean:.4g}, before {self.joint_before.mean:.4g}",
        ]
        if self.gain is not None:
            gain = f"{self.gain.mean:.2g} ± {self.gain.standard_error:.2g}"
            lines.append(f"length scale {self.length_scale:.4g}: pairs of near inputs gain {gain} nats")
        if not self.is_identified and not self.is_held:
            lines.append("`alpha` is at its lower end: no input has labels that differ enough to say more")
        return "\n".join(lines)


class _Parameters(NamedTuple):
    """Unconstrained parameters: logarithm of the temperature; bias and weights of the logit of `alpha`."""

    log_temperature: Float[Array, ""]
    bias: Float[Array, ""]
    weight: Float[Array, " features"]


class _Data(NamedTuple):
    """Held-out inputs as the base sees them, with one label each, or with counts of all labels."""

    logits: Float[Array, "batch classes"]
    standardized: Float[Array, "batch features"]
    y: Shaped[Array, "batch ..."]


def _share(logit: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    return MIN_ALPHA + (1 - MIN_ALPHA) * jax.nn.sigmoid(logit)


def _alphas(parameters: _Parameters, standardized: Float[Array, "batch features"]) -> Float[Array, " batch"]:
    return _share(standardized @ parameters.weight + parameters.bias)


def _marginal(log_temperature: Float[Array, ""], data: _Data) -> Float[Array, " pairs"]:
    """Return the mean log-loss of a label of each pair of inputs."""
    log_p = jax.nn.log_softmax(data.logits * jnp.exp(-log_temperature))
    if data.y.ndim == 1:
        losses = -jnp.take_along_axis(log_p, data.y[:, None], axis=1)[:, 0]
    else:
        counts = data.y.astype(log_p.dtype)
        losses = -jnp.sum(counts * log_p, axis=1) / jnp.sum(counts, axis=1)
    return jnp.mean(losses.reshape(-1, 2), axis=1)


def _anchors(
    log_temperature: Float[Array, ""], alphas: Float[Array, "*batch"], data: _Data, max_count: int
) -> Float[Array, " batch"]:
    """Return the exact log-loss of all labels of each input."""
    logits = data.logits * jnp.exp(-log_temperature)

    @jax.checkpoint
    def at(logits: Array, y: Array, alpha: Array) -> Float[Array, ""]:
        if y.ndim == 0:
            return anchor_loss(jax.nn.log_softmax(logits)[y], alpha, max_count)
        return -counts_log_prob(logits, y, alpha, max_count)

    if alphas.ndim:
        return jax.lax.map(lambda own: at(*own), (logits, data.y, alphas), batch_size=_BATCH_SIZE)
    # The distribution of the clusters is computed once for all inputs.
    return jax.lax.map(lambda own: at(*own, alphas), (logits, data.y), batch_size=_BATCH_SIZE)


def _joint(
    log_temperature: Float[Array, ""], alphas: Float[Array, "*batch"], data: _Data, max_count: int
) -> Float[Array, " pairs"]:
    """Return the exact log-loss of all labels of each pair of inputs, which are independent."""
    return jnp.sum(_anchors(log_temperature, alphas, data, max_count).reshape(-1, 2), axis=1)


def _check_temperature(data: _Data) -> None:
    """Raise if the marginal log-loss, convex in the inverse temperature, has its minimum at one of its ends."""
    counts = data.y if data.y.ndim == 2 else jax.nn.one_hot(data.y, data.logits.shape[1], dtype=int)
    counts = counts.astype(data.logits.dtype)
    own = jnp.sum(counts * data.logits, axis=1) / jnp.sum(counts, axis=1)
    top = jnp.max(data.logits, axis=1)
    if bool(jnp.all(own >= top - 1e-6 * jnp.abs(top))):
        raise ValueError("`y` must hold a label that the base does not predict; the best temperature is 0 without one.")
    gain = float(jnp.mean(own - jnp.mean(data.logits, axis=1)))
    if gain <= 0:
        raise ValueError(
            "`y` must hold labels that the base predicts better than chance, or the best temperature is infinite; "
            f"got logits that are higher by {gain:.3g} than those of all classes."
        )


def _minimize(objective: Callable[[PyTree[Array]], Float[Array, ""]], start: PyTree[Array]) -> PyTree[Array]:
    """Return the minimum of a smooth function, by L-BFGS."""
    optimizer = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(objective)

    def step(carry: Any) -> Any:
        point, state, count, _ = carry
        value, slope = value_and_grad(point, state=state)
        updates, state = optimizer.update(slope, state, point, value=value, grad=slope, value_fn=objective)
        size = optax.tree.norm(slope)
        return optax.apply_updates(point, updates), state, count + 1, size

    def goes_on(carry: Any) -> Array:
        return (carry[2] < _MAX_STEPS) & (carry[3] > 1e-5)

    first = (start, optimizer.init(start), jnp.asarray(0), jnp.asarray(jnp.inf))
    return jax.lax.while_loop(goes_on, step, first)[0]


@eqx.filter_jit
def _fit(
    start: _Parameters, data: _Data, penalty: Float[Array, ""], max_count: int, hold_marginals: bool, by_features: bool
) -> tuple[_Parameters, Array]:
    """Return the fitted parameters, and the covariance of all of them by pairs, as a sandwich."""

    def joint(parameters: _Parameters) -> Float[Array, " pairs"]:
        if not by_features:
            return _joint(parameters.log_temperature, _share(parameters.bias), data, max_count)
        losses = _joint(parameters.log_temperature, _alphas(parameters, data.standardized), data, max_count)
        return losses + penalty * jnp.sum(jnp.square(parameters.weight))

    if hold_marginals:
        log_temperature = _minimize(lambda value: jnp.mean(_marginal(value, data)), start.log_temperature)
        rest = _minimize(lambda rest: jnp.mean(joint(_Parameters(log_temperature, *rest))), (start.bias, start.weight))
        found = _Parameters(log_temperature, *rest)
    else:
        found = _minimize(lambda parameters: jnp.mean(joint(parameters)), start)
    flat, unflatten = ravel_pytree(found)
    size = flat.shape[0] if by_features else 2
    own = flat[:size]

    def parameters_at(own: Array) -> _Parameters:
        return unflatten(jnp.concatenate([own, flat[size:]]))

    def scores(own: Array) -> Float[Array, "pairs parameters"]:
        """Return what each pair adds to the equations that the fit solves."""
        slopes = jax.jacfwd(lambda own: joint(parameters_at(own)))(own)
        if hold_marginals:
            first = jax.jvp(lambda value: _marginal(value, data), (own[0],), (jnp.ones_like(own[0]),))[1]
            slopes = slopes.at[:, 0].set(first)
        return slopes

    each = scores(own)
    bread = jnp.linalg.pinv(jax.jacfwd(lambda own: jnp.mean(scores(own), axis=0))(own))
    spread = jnp.cov(each, rowvar=False) / each.shape[0]
    return found, bread @ spread @ bread.T


@eqx.filter_jit
def _fit_temperature(
    start: Float[Array, ""], alphas: Float[Array, " batch"], data: _Data, max_count: int, hold_marginals: bool
) -> tuple[Array, Array]:
    """Return the logarithm of the temperature that is best at these shares, and its variance by pairs."""

    def losses(log_temperature: Array) -> Float[Array, " pairs"]:
        if hold_marginals:
            return _marginal(log_temperature, data)
        return _joint(log_temperature, alphas, data, max_count)

    def slopes(log_temperature: Array) -> Float[Array, " pairs"]:
        return jax.jvp(losses, (log_temperature,), (jnp.ones_like(log_temperature),))[1]

    found = _minimize(lambda value: jnp.mean(losses(value)), start)
    each = slopes(found)
    curvature = jax.jvp(lambda value: jnp.mean(slopes(value)), (found,), (jnp.ones_like(found),))[1]
    return found, jnp.var(each, ddof=1) / each.shape[0] / jnp.square(curvature)


@eqx.filter_jit
def _judge(enn: PitmanYor, data: _Data, max_count: int) -> tuple[Estimate, Estimate]:
    """Return marginal and joint loss of a head, for each pair of inputs."""
    log_temperature, alphas = jnp.log(enn.temperature.value), jax.vmap(unwrap(enn.alpha))(data.standardized)
    joint = _joint(log_temperature, alphas, data, max_count)
    return (
        Estimate(_marginal(log_temperature, data), math.inf, 1, True),
        Estimate(joint, math.inf, max_count, True),
    )


@eqx.filter_jit
def _outputs(enn: PitmanYor, x: PyTree[Array], length: int, batch_size: int) -> tuple[Array, Array]:
    def at(x: PyTree[Array]) -> tuple[Array, Array]:
        logits, features = jax.vmap(unwrap(enn.base).with_features)(x)
        return logits, jax.vmap(enn.field.standardize)(features)

    return map_batches(at, x, length=length, batch_size=batch_size)


def calibrate(
    enn: PitmanYor,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    *,
    tau: int = 10,
    by_features: bool = False,
    hold_marginals: bool = True,
    hold_alpha: bool = False,
    l2: float = 1.0,
    draws: Draws | None = None,
    length_scales: Sequence[float] = (0.03, 0.1, 0.3, 1.0, 3.0),
    batch_size: int = 128,
    key: PRNGKeyArray | None = None,
) -> Calibrated:
    """Fit the temperature of the base and `alpha` to held-out data by exact losses, without an index.

    Given draws, also the length scale, by the sampled joint log-loss of *different* inputs: pairs that are each other's
    nearest by their standardized features.

    Only labels that differ at one input say what `alpha` is. With one label per input, the joint loss repeats that
    label, and the smallest `alpha` wins whatever the truth: `is_identified` is then False, and `alpha` is what you
    assume about a second label. Assume it by `attach(..., alpha=...)` and `hold_alpha`.

    Args:
        enn: the head, as `attach` returns it.
        x: held-out inputs, not those of the test, with a leading batch axis of even length.
        y: their labels: one class per input; or integer counts of each class, such as those of several annotators; or
            probabilities of each class, from which `tau` labels are drawn.
        tau: number of labels that are predicted jointly, where `y` does not say it.
        by_features: whether `alpha` is fitted as a logistic function of standardized features instead of a number.
        hold_marginals: whether the temperature has the lowest marginal log-loss, so that marginal predictions are the
            best that a temperature can make of the base; otherwise it has the lowest joint log-loss, with `alpha`.
        hold_alpha: whether to keep `alpha` and fit the temperature alone.
        l2: strength of the penalty on the weights of `by_features`: the precision of a Gaussian prior.
        draws: indices to choose the length scale with; without them it is kept.
        length_scales: the candidates.
        batch_size: how many examples the base is run on at a time.
        key: random key; needed where `y` holds probabilities.
    """
    check_head(enn)
    check_positive("tau", tau)
    check_positive("batch_size", batch_size)
    penalty = check_scalar("l2", l2, minimum=0.0)
    candidates = check_length_scales(length_scales)
    examples = check_examples(enn, "x", x)
    raw, standardized = _outputs(enn, examples.x, examples.length, batch_size)
    labels, max_count = read_labels(y, examples.length, enn.num_classes, tau, key)
    if max_count > _MAX_COUNT:
        raise ValueError(f"`y` must hold at most {_MAX_COUNT} labels of an input, or `tau` be that; got {max_count}.")
    if hold_alpha and by_features:
        raise ValueError("`by_features` must be False where `hold_alpha` leaves `alpha` as it is; got True for both.")
    num_parameters = 2 - hold_alpha + (standardized.shape[1] if by_features else 0)
    needed = 2 * _PAIRS_PER_PARAMETER * num_parameters
    if examples.length < needed or examples.length % 2:
        raise ValueError(
            f"`x` must hold an even number of inputs, at least {needed} to fit {num_parameters} parameters with; "
            f"got {examples.length}."
        )
    data = _Data(check_finite("logits", raw), standardized, labels)
    _check_temperature(data)
    first = jnp.log(enn.temperature.value)
    if hold_alpha:
        alpha = None
        alphas = jax.vmap(unwrap(enn.alpha))(standardized)
        log_temperature, variance = _fit_temperature(first, alphas, data, max_count, hold_marginals)
        mean, alpha_error, is_identified = jnp.mean(alphas), jnp.asarray(jnp.inf), False
    else:
        start = _Parameters(first, jnp.asarray(-1.0), jnp.zeros(standardized.shape[1]))
        # A sum over pairs has one prior, the mean over them its share.
        found, covariance = _fit(start, data, penalty / examples.length, max_count, hold_marginals, by_features)
        log_temperature, variance = found.log_temperature, covariance[0, 0]
        alphas = _alphas(found, standardized)
        alpha = LogisticAlpha(found.weight, found.bias) if by_features else ConstantAlpha(alphas[0])
        slopes = jax.grad(lambda parameters: jnp.mean(_alphas(parameters, standardized)))(found)
        direction = ravel_pytree(slopes)[0][: covariance.shape[0]]
        mean = jnp.mean(alphas)
        is_identified = bool(mean > _LOWER_END)
        alpha_error = jnp.sqrt(direction @ covariance @ direction) if is_identified else jnp.asarray(jnp.inf)
    temperature = jnp.exp(log_temperature)
    fitted = enn.with_parameters(alpha=alpha, temperature=temperature)
    gain = None
    if draws is not None:
        counts, most = (
            (labels, max_count) if labels.ndim == 2 else (jax.nn.one_hot(labels, enn.num_classes, dtype=int), 1)
        )
        # One share for all inputs is handed on as a number: the distribution of the clusters is then computed once.
        shares = alphas[0] if isinstance(unwrap(fitted.alpha), ConstantAlpha) else alphas
        independent = _anchors(log_temperature, shares, data._replace(y=counts), most)
        chosen, gain = choose_length_scale(
            fitted, examples.x, standardized, counts.astype(raw.dtype), independent, draws, candidates
        )
        fitted = fitted.with_parameters(length_scale=chosen)
    return Calibrated(
        fitted,
        temperature,
        temperature * jnp.sqrt(variance),
        mean,
        alpha_error,
        *_judge(fitted, data, max_count),
        *_judge(enn, data, max_count),
        unwrap(fitted.field.length_scale),
        gain,
        is_identified,
        hold_alpha,
    )
