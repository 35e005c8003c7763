"""Fit the temperature of any classifier, and the scale of its spread, to held-out labels in one call."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree, Shaped

from .._checks import check_function, check_positive
from .._counts import average_cases, dyadic_cases, weigh_counts
from .._draws import Draws, LogSum, check_draws, check_result, choose_batch_size, map_batches, outputs_at
from .._enn import AbstractENN
from .._examples import check_examples, read_labels
from .._keys import named_keys
from ..combinators import Tempered
from ..metrics import Estimate
from ..pitman_yor import PitmanYor
from ._tune import check_increase, stack_candidates

# Pairs of inputs that each fitted number needs.
_PAIRS_PER_PARAMETER = 20
# Octaves around the best place so far at which scales and temperatures are tried, coarse to fine: the best temperature
# moves with the scale, so its steps reach as far.
_ROUNDS = (
    (np.arange(-4, 5) * 1.0, np.arange(-12, 13) / 3),
    (np.arange(-3, 4) / 3, np.arange(-6, 7) / 9),
    (np.arange(-3, 4) / 9, np.arange(-6, 7) / 27),
)
# How often a round is repeated around a best place at its edge.
_MAX_MOVES = 3
# A temperature that is farther from 1 has no end.
_MAX_OCTAVES = 12.0
_NO_LOSS = 1e-6
_NUM_RESAMPLES = 200


class Calibration(eqx.Module):
    """An ENN at its fitted temperature and scale, and the losses of the fit on its own data.

    Attributes:
        enn: the ENN with the fitted parameters.
        temperature: the fitted temperature.
        temperature_error: its standard error, by resampling pairs of inputs.
        scale: the fitted scale; None if there was none to fit.
        scale_error: its standard error, likewise.
        marginal: mean log-loss of a single label, one value per pair of inputs.
        joint: joint log-loss of a pair of inputs, in total nats.
        marginal_before: the same for the ENN as it was given.
        joint_before: likewise.
    """

    enn: AbstractENN
    temperature: Float[Array, ""]
    temperature_error: Float[Array, ""]
    scale: Float[Array, ""] | None
    scale_error: Float[Array, ""] | None
    marginal: Estimate
    joint: Estimate
    marginal_before: Estimate
    joint_before: Estimate

    def __str__(self) -> str:
        lines = [f"temperature {self.temperature:.4g} ± {self.temperature_error:.2g}"]
        if self.scale is not None:
            lines.append(f"scale {self.scale:.4g} ± {self.scale_error:.2g}")
        lines.append(f"marginal log-loss {self.marginal.mean:.4g}, before {self.marginal_before.mean:.4g}")
        lines.append(f"joint log-loss {self.joint.mean:.4g}, before {self.joint_before.mean:.4g}")
        return "\n".join(lines)


class _Pairs(NamedTuple):
    """Pairs of inputs, and how often each outcome occurs there.

    An outcome is a label of either input: the known one, or any class where several labels are counted.
    """

    x: PyTree[Array]
    y: Int[Array, "pairs 2"] | None
    shares: Float[Array, "pairs outcomes"]
    counts: Float[Array, "pairs outcomes"] | None
    length: int
    tau: int
    draws: Draws
    batch_size: int


class _PairSums(eqx.Module):
    """Sums over indices: of each outcome, and of each case of several."""

    outcomes: LogSum
    cases: LogSum


def _losses_of(
    enn: AbstractENN, temperatures: Float[Array, " temperatures"], data: _Pairs
) -> Float[Array, "2 temperatures pairs"]:
    """Return marginal and joint log-loss of each pair at several temperatures, from one pass over the indices."""
    dyads, weights = dyadic_cases(data.tau)

    def at(part: tuple[PyTree[Array], Array | None, Array, Array | None]) -> Float[Array, "pairs temperatures 2"]:
        x, y, shares, own = part
        size = shares.shape[0]
        embeddings = jax.vmap(enn.embed)(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), x))
        counts = dyads if own is None else own[:, None, :]

        def tally(sums: _PairSums, outputs: Float[Array, "samples batch classes"], valid: Array) -> _PairSums:
            log_p = jax.nn.log_softmax(outputs)
            if y is not None:
                log_p = jnp.take_along_axis(log_p, y.reshape(1, -1, 1), axis=2)
            log_p = log_p.reshape(outputs.shape[0], size, -1)
            return _PairSums(sums.outcomes.add(log_p, valid), sums.cases.add(weigh_counts(counts, log_p), valid))

        def step(sums: _PairSums, zs: Shaped[Array, "samples ..."], valid: Array) -> _PairSums:
            outputs = outputs_at(enn, embeddings, zs)
            # One temperature at a time, so that the chunk stays in the cache.
            return jax.lax.map(lambda each: tally(each[0], outputs / each[1], valid), (sums, temperatures))

        empty = _PairSums(LogSum.zeros(shares.shape), LogSum.zeros((size, counts.shape[-2])))
        start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (temperatures.size, *leaf.shape)), empty)
        sums = data.draws.fold(step, start)
        count = data.draws.num_samples
        log_p = sums.outcomes.log_mean(count)
        marginal = jnp.sum(jnp.where(shares[None] > 0, shares[None] * log_p, 0.0), axis=-1)
        cases = sums.cases.log_mean(count)
        joint = jax.vmap(average_cases, (None, 0))(weights, cases) if own is None else cases[..., 0]
        return -jnp.stack([marginal, joint]).T

    part = (data.x, data.y, data.shares, data.counts)
    found = map_batches(at, part, length=data.length, batch_size=data.batch_size)
    return found.T


@eqx.filter_jit
def _losses(
    varying: PyTree, shared: PyTree, numbers: Int[Array, " scales"], temperatures: Array, data: _Pairs
) -> Float[Array, "scales 2 temperatures pairs"]:
    """Return the losses of several ENNs, in one program that computes their shared parts once."""
    # The numbers give the axis its size even if nothing varies.
    return eqx.filter_vmap(lambda own, _: _losses_of(eqx.combine(own, shared), temperatures, data))(varying, numbers)


class _Tried(NamedTuple):
    """Places that were tried, in octaves of scale and temperature, with both losses of each pair there."""

    places: Float[np.ndarray, "places 2"]
    losses: Float[np.ndarray, "places 2 pairs"]

    def means(self, weights: Float[np.ndarray, "resamples pairs"]) -> Float[np.ndarray, "2 places resamples"]:
        """Return the mean losses at each place, where pairs count as often as `weights` says."""
        return np.moveaxis(self.losses @ weights.T / weights.sum(axis=1), 1, 0)

    def best(
        self, weights: Float[np.ndarray, "resamples pairs"], limits: Float[np.ndarray, " resamples"] | None
    ) -> Int[np.ndarray, " resamples"]:
        """Return the place with the lowest joint loss within the limits; the lowest marginal loss where there is none.

        Args:
            weights: how often each pair counts, several ways.
            limits: upper limits of the marginal loss, for each way; if not given, the marginal loss decides.
        """
        marginal, joint = self.means(weights)
        if limits is None:
            return np.argmin(marginal, axis=0)
        allowed = marginal <= limits
        return np.argmin(np.where(allowed.any(axis=0), np.where(allowed, joint, np.inf), marginal), axis=0)


_TryAt = Callable[[np.ndarray, np.ndarray], Float[np.ndarray, "scales 2 temperatures pairs"]]


def _search(try_at: _TryAt, with_scale: bool, limit: float | None) -> tuple[_Tried, int]:
    """Return the candidates around the best place, coarse to fine, and the position of that place."""
    tried, best = _Tried(np.zeros((0, 2)), np.zeros(0)), 0
    center = np.zeros(2)
    for scale_steps, steps in _ROUNDS:
        for _ in range(_MAX_MOVES):
            axes = [center[0] + scale_steps if with_scale else np.zeros(1), center[1] + steps]
            losses = try_at(*(2.0**axis for axis in axes)).swapaxes(1, 2)
            losses = losses.reshape(-1, *losses.shape[2:]).astype(np.float64)
            places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
            known = [(tried.places, tried.losses)] if len(tried.places) else []
            tried = _Tried(*(np.concatenate(parts) for parts in zip(*known, (places, losses), strict=True)))
            limits = None if limit is None else np.array([limit])
            best = int(tried.best(np.ones((1, losses.shape[-1])), limits)[0])
            center = tried.places[best]
            if not any(axis.size > 1 and center[n] in (axis[0], axis[-1]) for n, axis in enumerate(axes)):
                break
    # If all labels are predicted, the loss reaches zero long before the temperature does.
    if abs(center[1]) > _MAX_OCTAVES or tried.losses[best, 0].mean() < _NO_LOSS:
        raise ValueError(
            "`y` must hold labels with a best temperature: some that the ENN does not predict, and more that it "
            f"predicts than by chance; got the best one at a temperature of {2.0 ** center[1]:.2g}."
        )
    return tried, best


def _spread(octaves: Float[np.ndarray, " resamples"], step: float) -> float:
    """Return the standard error of a logarithm: its spread over resamples, and the width of the finest steps."""
    return math.log(2) * math.sqrt(float(np.var(octaves)) + step**2 / 12)


def _read(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    tau: int,
    num_parameters: int,
    key: PRNGKeyArray,
) -> _Pairs:
    """Return checked pairs of inputs with their labels."""
    examples = check_examples(enn, "x", x)
    needed = 2 * _PAIRS_PER_PARAMETER * num_parameters
    if examples.length < needed or examples.length % 2:
        raise ValueError(
            f"`x` must hold an even number of inputs, at least {needed} to fit {num_parameters} parameters with; "
            f"got {examples.length}."
        )
    if examples.num_outputs < 2:
        raise ValueError(f"`enn` must have at least 2 classes; got {examples.num_outputs}.")
    labels, most = read_labels(y, examples.length, examples.num_outputs, tau, key)
    length = examples.length // 2
    pairs = jax.tree.map(lambda leaf: leaf.reshape(length, 2, *leaf.shape[1:]), examples.x)
    size = max(1, choose_batch_size(draws, examples.num_outputs) // 2)
    if labels.ndim == 1:
        shares = jnp.full((length, 2), 0.5)
        return _Pairs(pairs, labels.reshape(length, 2), shares, None, length, tau, draws, size)
    counts = labels.astype(float)
    shares = (counts / (2 * jnp.sum(counts, axis=1, keepdims=True))).reshape(length, -1)
    return _Pairs(pairs, None, shares, counts.reshape(length, -1), length, most, draws, size)


def calibrate(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    with_scale: Callable[[Array], AbstractENN] | None = None,
    tau: int = 10,
    max_marginal_loss_increase: float = 0.0,
    key: PRNGKeyArray,
) -> Calibration:
    """Fit the temperature of a classifier, and a scale if it has one, by joint log-loss, its marginals held or free.

    For any ENN whose predictions are averages over indices: epinets, ensembles, Bayesian networks. The Pitman-Yor head
    has a fit of its own, `pitman_yor.calibrate`, by exact losses.

    The lowest joint log-loss wins among those whose marginal log-loss is no higher than what the best temperature makes
    of `enn`, plus an allowance. Without an allowance and without a scale, that best temperature is the answer.

    Scales and temperatures are tried coarse to fine, down to steps of eight and of three percent. What ENNs of several
    scales share, such as a base, runs once for all of them.

    Args:
        enn: the ENN.
        x: held-out inputs, not those of the test, with a leading batch axis of even length.
        y: their labels: one class per input; or integer counts of each class, such as those of several annotators; or
            probabilities of each class, from which `tau` labels are drawn.
        draws: the indices to average over; losses fall with their number, so choose with as many as you will use.
        with_scale: maps a positive scale to an ENN that differs in nothing else, such as `enn.with_prior_scales`, or
            `lambda scale: Mirrored(enn, scale)` for the spread around the base.
        tau: number of labels that are predicted jointly, where `y` does not say it.
        max_marginal_loss_increase: how much marginal log-loss may be given away, in nats; `math.inf` leaves it free.
        key: random key of the resamples that errors come from, and of labels that are drawn.
    """
    check_positive("tau", tau)
    if isinstance(enn, PitmanYor):
        raise ValueError(
            "`enn` must not be a Pitman-Yor head, whose marginals a temperature of its outputs would change; "
            "use `pitman_yor.calibrate`."
        )
    max_marginal_loss_increase = check_increase(max_marginal_loss_increase, finite=False)
    if with_scale is not None:
        check_function("with_scale", with_scale)
    label_key, resample_key = named_keys(key, "labels", "resamples")
    draws = check_draws(enn, draws)
    data = _read(enn, x, y, draws, tau, 1 if with_scale is None else 2, label_key)

    def try_with(build: Callable[[Array], AbstractENN]) -> _TryAt:
        def try_at(scales: np.ndarray, temperatures: np.ndarray) -> Float[np.ndarray, "scales 2 temperatures pairs"]:
            enns = [build(jnp.asarray(scale, dtype=float)) for scale in scales]
            for own in enns:
                check_draws(own, draws)
            varying, shared = stack_candidates("with_scale", enns)
            # The ENNs share the memory budget of one evaluation.
            own = data._replace(batch_size=max(1, data.batch_size // len(enns)))
            losses = _losses(varying, shared, jnp.arange(len(enns)), jnp.asarray(temperatures, dtype=float), own)
            found = np.asarray(check_result("log-losses", losses, draws))
            if wrong := int(np.sum(~np.isfinite(found).all(axis=(0, 1, 2)))):
                raise ValueError(
                    "`enn` must give every label of `y` a positive probability; "
                    f"got infinite losses of {wrong} of {data.length} pairs of inputs."
                )
            return found

        return try_at

    known, at = _search(try_with(lambda _: enn), False, None)
    everything = np.ones((1, data.length))
    limit = known.means(everything)[0, at, 0] + max_marginal_loss_increase
    is_free = with_scale is not None or max_marginal_loss_increase > 0
    tried, best = (
        _search(try_with(with_scale or (lambda _: enn)), with_scale is not None, limit) if is_free else (known, at)
    )
    reached = tried.means(everything)[0, best, 0]
    if reached > limit:
        raise ValueError(
            f"`with_scale` must return ENNs that reach a marginal log-loss of {limit:.4g}, that of `enn` at its best "
            f"temperature and `max_marginal_loss_increase`; got {reached:.4g} at best."
        )
    drawn = np.asarray(jr.randint(resample_key, (_NUM_RESAMPLES, data.length), 0, data.length))
    weights = np.stack([np.bincount(row, minlength=data.length) for row in drawn]).astype(np.float64)
    limits = known.means(weights)[0].min(axis=0) + max_marginal_loss_increase
    octaves = tried.places[tried.best(weights, limits if is_free else None)]
    scale, temperature = (jnp.asarray(2.0**place, dtype=float) for place in tried.places[best])
    errors = [_spread(own, steps[1] - steps[0]) for own, steps in zip(octaves.T, _ROUNDS[-1], strict=True)]
    before = try_with(lambda _: enn)(np.ones(1), np.ones(1))[0, :, 0]

    def estimates(losses: Float[np.ndarray, "2 pairs"]) -> tuple[Estimate, Estimate]:
        marginal, joint = jnp.asarray(losses, dtype=float)
        return (
            Estimate(marginal, draws.num_samples, 1, draws.exact),
            Estimate(joint, draws.num_samples, data.tau, draws.exact),
        )

    return Calibration(
        Tempered(enn if with_scale is None else with_scale(scale), temperature),
        temperature,
        temperature * errors[1],
        None if with_scale is None else scale,
        None if with_scale is None else scale * errors[0],
        *estimates(tried.losses[best]),
        *estimates(before),
    )
