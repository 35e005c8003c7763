"""Choose a temperature, a prior scale or any other parameter by its held-out log-loss."""

import math
import sys
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree, Shaped

from .._checks import as_real_array, check_function, check_positive, num_examples
from .._counts import dyadic_cases
from .._draws import Draws, check_result
from .._enn import AbstractENN
from .._likelihoods import CATEGORICAL, AbstractLikelihood
from .._scores import Data, check_data, stream_scores
from ..combinators import Tempered
from ..metrics import Estimate, LogLosses


class Tuned(eqx.Module):
    """The best of several candidates.

    Attributes:
        best: the candidate with the lowest loss.
        losses: the loss of each candidate, an estimate with a leading axis.
        index: the number of the best candidate.
        marginal: the marginal log-loss of each candidate, likewise.
        allowed: which candidates were eligible: all, unless the marginal log-loss was constrained.
    """

    best: PyTree[Array]
    losses: Estimate
    index: Int[Array, ""]
    marginal: Estimate
    allowed: Bool[Array, " candidates"]


def check_increase(value: float, *, finite: bool) -> float:
    """Return the argument `max_marginal_loss_increase`; an infinite one leaves marginals free."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not value >= 0 or (value > sys.float_info.max and (finite or value != math.inf)):
        bound = "finite and at least 0" if finite else "at least 0"
        raise ValueError(f"`max_marginal_loss_increase` must be {bound}; got {value!r}.")
    return float(value)


def stack_candidates(name: str, enns: list[AbstractENN]) -> tuple[AbstractENN, AbstractENN]:
    """Split the ENNs of the argument `name` into differing arrays, stacked along an axis, and shared ones.

    An array that every ENN holds (the very same one, not a copy) is shared: the weights of a base network are then
    stored once, and what depends on nothing else is computed once for all candidates.
    """
    structure = jax.tree.structure(enns[0])
    for number, enn in enumerate(enns):
        if jax.tree.structure(enn) != structure:
            raise ValueError(
                f"`{name}` must return ENNs that differ in the values of arrays only; "
                f"got another structure for candidate {number}."
            )
    varying, shared = [], []
    for leaves in zip(*(jax.tree.leaves(enn) for enn in enns), strict=True):
        first = leaves[0]
        same = all(leaf is first or (not eqx.is_array(leaf) and leaf == first) for leaf in leaves)
        if not same and not all(eqx.is_array(leaf) and leaf.shape == first.shape for leaf in leaves):
            raise ValueError(
                f"`{name}` must return ENNs that differ in the values of arrays only; got {first!r} and {leaves[-1]!r}."
            )
        varying.append(None if same else jnp.stack(leaves))
        shared.append(first if same else None)
    return jax.tree.unflatten(structure, varying), jax.tree.unflatten(structure, shared)


@eqx.filter_jit
def _losses(varying: PyTree, shared: PyTree, numbers: Int[Array, " candidates"], data: Data, tau: int) -> LogLosses:
    """Return the log-losses of all candidates, in one program."""
    counts, _ = dyadic_cases(tau)

    def of(varying: PyTree, number: Int[Array, ""]) -> LogLosses:
        (scores,) = stream_scores(
            eqx.combine(varying, shared),
            data.x,
            data.y,
            counts,
            data.draws,
            likelihood=data.likelihood,
            sample_counts=(data.draws.num_samples,),
            batch_size=data.batch_size,
            num_classes=None,
        )
        return LogLosses.of_pairs(scores, data.draws.num_samples, tau=tau, exact=data.draws.exact)

    # The numbers give the axis of candidates its size even if nothing varies, as with a single candidate.
    return eqx.filter_vmap(of)(varying, numbers)


def tune(
    build: Callable[[Any], AbstractENN],
    candidates: PyTree[ArrayLike],
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    tau: int = 10,
    metric: Literal["joint", "marginal"] = "joint",
    max_marginal_loss_increase: float | None = None,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Tuned:
    """Return the candidate whose ENN has the lowest log-loss on held-out data.

    All candidates are evaluated with the same indices, in one compiled program that is vectorized over them: other
    values of as many candidates compile nothing anew. What `build` leaves as it is, such as the base network of an
    epinet whose temperature is tuned, runs once for all of them.

    Args:
        build: maps one candidate to an ENN, for instance `lambda t: Tempered(enn, t)` or `enn.with_prior_scales`.
        candidates: an array or a tree of arrays; entry `i` along the leading axis is candidate `i`.
        x: held-out inputs, an array or a tree of arrays with a leading batch axis of even length.
        y: their targets.
        draws: the indices to average over.
        tau: number of labels of the joint log-loss.
        metric: whether the dyadic joint or the marginal log-loss decides.
        max_marginal_loss_increase: if given, only candidates are eligible whose marginal log-loss exceeds that of
            candidate 0 by at most this; candidate 0 always is.
        likelihood: how an output becomes a distribution of the target.
    """
    check_positive("tau", tau)
    if metric not in ("joint", "marginal"):
        raise ValueError(f'`metric` must be "joint" or "marginal"; got {metric!r}.')
    check_function("build", build)
    if max_marginal_loss_increase is not None:
        max_marginal_loss_increase = check_increase(max_marginal_loss_increase, finite=True)
    count = num_examples("candidates", candidates)
    candidates = jax.tree.map(lambda leaf: as_real_array("candidates", leaf), candidates)
    entries = [jax.tree.map(lambda leaf, number=number: leaf[number], candidates) for number in range(count)]
    enns = [build(entry) for entry in entries]
    data = check_data(enns[0], x, y, draws, group_size=2, likelihood=likelihood)
    if draws.batch_size is None:
        # The candidates share the memory budget of one evaluation.
        data = data._replace(batch_size=max(2, data.batch_size // count))
    varying, shared = stack_candidates("build", enns)
    losses = check_result(
        "log-losses of the candidates", _losses(varying, shared, jnp.arange(count), data, tau), data.draws
    )
    chosen: Estimate = losses.joint if metric == "joint" else losses.marginal
    allowed = jnp.ones(count, dtype=bool)
    if max_marginal_loss_increase is not None:
        marginal = losses.marginal.mean
        allowed = marginal <= marginal[0] + max_marginal_loss_increase
    index = jnp.argmin(jnp.where(allowed, chosen.mean, jnp.inf))
    return Tuned(jax.tree.map(lambda leaf: leaf[index], candidates), chosen, index, losses.marginal, allowed)


def tune_temperature(
    enn: AbstractENN,
    x: PyTree[ArrayLike],
    y: Shaped[ArrayLike, "batch ..."],
    draws: Draws,
    *,
    temperatures: Float[ArrayLike, " candidates"],
    tau: int = 10,
    max_marginal_loss_increase: float = 0.0,
    likelihood: AbstractLikelihood = CATEGORICAL,
) -> Tuned:
    """Return the temperature with the lowest joint log-loss among those that do not degrade the marginal log-loss.

    Temperature 1, the unchanged ENN, is candidate 0: the marginal log-losses of the others are compared with it, and
    the answer if none of them will do. `Tempered(enn, tuned.best)` is the result as an ENN.

    Args:
        enn: the ENN.
        x: held-out inputs, not those of the test, with a leading batch axis of even length.
        y: their labels.
        draws: the indices to average over.
        temperatures: the temperatures to try besides 1.
        tau: number of labels of the joint log-loss.
        max_marginal_loss_increase: by how many nats the marginal log-loss may exceed that of temperature 1.
        likelihood: how an output becomes a distribution of the label.
    """
    candidates = as_real_array("temperatures", temperatures).astype(float)
    if candidates.ndim != 1 or candidates.size == 0:
        raise ValueError(f"`temperatures` must be a vector of at least one temperature; got shape {candidates.shape}.")
    return tune(
        lambda temperature: Tempered(enn, temperature),
        jnp.concatenate([jnp.ones(1), candidates]),
        x,
        y,
        draws,
        tau=tau,
        max_marginal_loss_increase=max_marginal_loss_increase,
        likelihood=likelihood,
    )
