r"""KL divergence of predictions from the truth: $\mathrm{KL}(P_{1:\tau} \| \hat P_{1:\tau})$ (Section 5, App. E)."""

import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from .._checks import check_positive
from .._counts import count_log_probs, outcome_cases, weigh_counts
from .._draws import Draws, check_draws, outputs_at
from .._enn import AbstractENN
from .._keys import named_keys
from .._likelihoods import CATEGORICAL, target_log_probs
from ..metrics import Estimate
from ._problem import GenerativeModel, Problem

# Test batches of the original estimator.
NUM_BATCHES = 1000

NUM_ANCHORS = 2

# As many cases as 20 binary labels have; their number grows with the third power of tau.
_MAX_CASES = 1771


def check_taus(taus: Sequence[int]) -> None:
    """Raise unless `taus` holds distinct positive integers."""
    for tau in taus:
        check_positive("taus", tau)
    if not taus or len(set(taus)) < len(taus):
        raise ValueError(f"`taus` must hold at least one number of labels, and each once; got {tuple(taus)}.")


def _true_model(problem: Problem) -> GenerativeModel:
    """Return the true model of a problem, which must have one."""
    if problem.model is None:
        raise ValueError(
            "`problem` must have a true model to draw test batches from; one made from arrays is scored by `given_kl`."
        )
    return problem.model


def _draw_anchors(input_dim: int, num_batches: int, *, key: PRNGKeyArray) -> Float[Array, "batches anchors features"]:
    """Draw the anchors of each test batch, from its number and the key only."""
    check_positive("num_batches", num_batches)
    numbers = jnp.arange(num_batches)
    # As vectors: with short axes innermost, XLA unrolls the rounds of the random numbers for each of their entries.
    flat = jax.vmap(lambda number: jr.normal(jr.fold_in(key, number), (NUM_ANCHORS * input_dim,)))(numbers)
    return flat.reshape(num_batches, NUM_ANCHORS, input_dim)


def _true_log_probs(
    model: GenerativeModel, anchors: Float[Array, "batches anchors features"]
) -> Float[Array, "batches outcomes"]:
    """Return the true log-probability of each outcome, a class at an anchor, given that the anchor was drawn."""
    log_p = jax.nn.log_softmax(jax.vmap(jax.vmap(model))(anchors))
    return log_p.reshape(anchors.shape[0], -1)


def _predicted_log_probs(
    enn: AbstractENN,
    anchors: Float[Array, "batches anchors features"],
    counts: Float[Array, "... cases outcomes"],
    draws: Draws,
) -> Float[Array, "batches cases"]:
    """Return the joint log-probability (Eq. 2) of each case, given how often each outcome occurs in it."""
    batches = anchors.shape[0]
    embeddings = jax.vmap(enn.embed)(anchors.reshape(-1, anchors.shape[-1]))

    def log_p_at(zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples batches outcomes"]:
        return jax.nn.log_softmax(outputs_at(enn, embeddings, zs)).reshape(zs.shape[0], batches, -1)

    return count_log_probs(log_p_at, counts, draws)


LogJoint = Callable[
    [Float[Array, "batches anchors features"], Float[np.ndarray, "cases anchors classes"]],
    Float[Array, "batches cases"],
]
"""Maps anchors, and how often each class occurs at each of them in each case, to joint log-probabilities."""


def closed_form_kl(
    log_joint: LogJoint,
    problem: Problem,
    *,
    taus: tuple[int, ...] = (1, 10),
    num_batches: int = NUM_BATCHES,
    key: PRNGKeyArray,
) -> dict[int, Estimate]:
    r"""Return the KL divergence for each tau of a predictor that knows its joint probabilities without any index.

    The expectation is that of `exact_kl`, on the same anchors with the same key.

    Args:
        log_joint: the predictor; it is called once, with all cases of all tau.
        problem: a problem with a true model; its data are not looked at.
        taus: numbers of labels that are predicted jointly, at most 20 with two classes.
        num_batches: number of pairs of anchors.
        key: random key of the anchors.
    """
    check_taus(taus)
    model, known = _true_model(problem), problem.knowledge
    outcomes = NUM_ANCHORS * known.num_classes
    for tau in taus:
        if math.comb(tau + outcomes - 1, outcomes - 1) > _MAX_CASES:
            raise ValueError(
                f"`taus` must give at most {_MAX_CASES} cases of {known.num_classes} classes to be averaged exactly; "
                f"got tau = {tau}. Use `sampled_kl`."
            )
    (anchor_key,) = named_keys(key, "anchors")
    anchors = _draw_anchors(known.input_dim, num_batches, key=anchor_key)
    cases = [outcome_cases(tau, outcomes) for tau in taus]
    counts = np.concatenate([case_counts for case_counts, _ in cases])
    # Each draw falls on either anchor with the same probability.
    log_orders = [orders - tau * math.log(NUM_ANCHORS) for tau, (_, orders) in zip(taus, cases, strict=True)]
    true = weigh_counts(jnp.asarray(counts, dtype=float), _true_log_probs(model, anchors)[None])[0]
    predicted = log_joint(anchors, counts.reshape(-1, NUM_ANCHORS, known.num_classes))
    weights = jnp.exp(true + jnp.asarray(np.concatenate(log_orders), dtype=float)[None, :])
    # An outcome that the predictor excludes costs infinity, even where its weight underflows.
    terms = jnp.where(jnp.isneginf(predicted), jnp.inf, weights * (true - predicted))
    ends = list(itertools.accumulate(len(orders) for orders in log_orders))[:-1]
    values = [jnp.sum(part, axis=1) for part in jnp.split(terms, ends, axis=1)]
    return {tau: Estimate(value, math.inf, tau, True) for tau, value in zip(taus, values, strict=True)}


def exact_kl(
    enn: AbstractENN,
    problem: Problem,
    draws: Draws,
    *,
    taus: tuple[int, ...] = (1, 10),
    num_batches: int = NUM_BATCHES,
    key: PRNGKeyArray,
) -> dict[int, Estimate]:
    r"""Return the KL divergence for each tau, averaged *exactly* over draws and labels given the anchors.

    The $\tau$ inputs of a test batch are drawn from two anchors, and their labels from the true model, again for each
    draw. Joint probabilities depend on nothing but how often each class occurs at each anchor, so the expectation is
    a sum over these counts with their multinomial probabilities: 286 cases at $\tau = 10$. In total nats over the
    $\tau$ labels; the standard error is over anchors. All tau share the anchors.

    A pure function: compile it, map it over stacked ENNs and problems; or see `evaluate`. Nothing is checked for NaN:
    `count_nonfinite` says how many values of an estimate are not finite, and its mean is then not finite either.

    Args:
        enn: the ENN.
        problem: a problem with a true model; its data are not looked at.
        draws: the indices to average over; the original testbed samples 1000.
        taus: numbers of labels that are predicted jointly, at most 20 with two classes; `sampled_kl` takes any.
        num_batches: number of pairs of anchors.
        key: random key of the anchors; with the same key, agents are compared on the same anchors.
    """
    draws = check_draws(enn, draws)

    def log_joint(anchors: Array, counts: np.ndarray) -> Float[Array, "batches cases"]:
        return _predicted_log_probs(enn, anchors, jnp.asarray(counts.reshape(len(counts), -1), dtype=float), draws)

    found = closed_form_kl(log_joint, problem, taus=taus, num_batches=num_batches, key=key)
    return {tau: Estimate(own.values, draws.num_samples, tau, draws.exact) for tau, own in found.items()}


def _draw_counts(
    log_probs: Float[Array, " outcomes"], tau: int, num_draws: int, *, key: PRNGKeyArray
) -> Float[Array, "draws outcomes"]:
    """Draw tau points from the anchors of one batch and a label for each; return how often each outcome occurs."""
    anchor_key, label_key = named_keys(key, "anchors", "labels")
    log_probs = log_probs.reshape(NUM_ANCHORS, -1)
    anchors = jr.randint(anchor_key, (num_draws, tau), 0, NUM_ANCHORS)
    labels: Int[Array, "draws tau"] = jr.categorical(label_key, log_probs[anchors])
    drawn = anchors * log_probs.shape[1] + labels
    return jnp.sum(jax.nn.one_hot(drawn, log_probs.size), axis=1)


def sampled_kl(
    enn: AbstractENN,
    problem: Problem,
    draws: Draws,
    *,
    taus: tuple[int, ...] = (1, 10),
    num_batches: int = NUM_BATCHES,
    num_draws: int = 1,
    key: PRNGKeyArray,
) -> dict[int, Estimate]:
    r"""Return the KL divergence for each tau as the original testbed estimates it, from sampled test batches.

    `exact_kl` with the same draws and key has the same anchors: it is the expectation of this over draws and labels.
    The standard error is over test batches. A pure function, which may be compiled and mapped.

    Args:
        enn: the ENN.
        problem: a problem with a true model; its data are not looked at.
        draws: the indices to average over; the original testbed samples 1000.
        taus: numbers of labels that are predicted jointly, of any size.
        num_batches: number of test batches.
        num_draws: how often the points and labels of a batch are drawn; the mean over these is taken first.
        key: random key of the anchors, draws and labels.
    """
    check_taus(taus)
    check_positive("num_draws", num_draws)
    model, known = _true_model(problem), problem.knowledge
    draws = check_draws(enn, draws)
    anchor_key, draw_key = named_keys(key, "anchors", "draws")
    anchors = _draw_anchors(known.input_dim, num_batches, key=anchor_key)
    log_probs = _true_log_probs(model, anchors)

    def counts_of(number: Int[Array, ""], log_probs: Float[Array, " outcomes"]) -> Float[Array, "cases outcomes"]:
        batch_key = jr.fold_in(draw_key, number)
        parts = [_draw_counts(log_probs, tau, num_draws, key=jr.fold_in(batch_key, tau)) for tau in taus]
        return jnp.concatenate(parts)

    counts = jax.vmap(counts_of)(jnp.arange(num_batches), log_probs)
    true = weigh_counts(counts, log_probs[None])[0]
    differences = true - _predicted_log_probs(enn, anchors, counts, draws)
    values = [jnp.mean(part, axis=1) for part in jnp.split(differences, len(taus), axis=1)]
    return {tau: Estimate(value, draws.num_samples, tau, draws.exact) for tau, value in zip(taus, values, strict=True)}


def count_nonfinite(estimate: Estimate) -> Int[Array, "..."]:
    """Return how many values of an estimate are NaN or infinite: test batches where an agent failed."""
    return jnp.sum(~jnp.isfinite(estimate.values), axis=-1)


def given_kl(
    enn: AbstractENN,
    problem: Problem,
    draws: Draws,
    *,
    taus: tuple[int, ...] | None = None,
) -> dict[int, Estimate]:
    r"""Return the KL divergence for each tau from the test batches of a problem that was made from arrays.

    The mean over batches of $\ln P(y_{1:\tau}) - \ln \hat P(y_{1:\tau})$, with the given true log-likelihoods; the
    standard error is over batches. A pure function, which may be compiled and mapped.

    Args:
        enn: the ENN.
        problem: a problem with test batches.
        draws: the indices to average over; the original testbed samples 1000.
        taus: numbers of labels, which the test batches must have; by default all they have.
    """
    tests = {batches.tau: batches for batches in problem.tests}
    taus = problem.taus if taus is None else taus
    check_taus(taus)
    for tau in taus:
        if tau not in tests:
            raise ValueError(f"`taus` must be those of the given test batches, {problem.taus}; got {tau}.")
    draws = check_draws(enn, draws)

    def estimate(tau: int) -> Estimate:
        x, y = tests[tau].x, tests[tau].y
        embeddings = jax.vmap(enn.embed)(x.reshape(-1, x.shape[-1]))

        def log_p_at(zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples batches tau"]:
            log_p = target_log_probs(CATEGORICAL, outputs_at(enn, embeddings, zs), y.reshape(-1))
            return log_p.reshape(-1, *y.shape)

        predicted = count_log_probs(log_p_at, jnp.ones((1, tau)), draws)[:, 0]
        return Estimate(tests[tau].log_likelihoods - predicted, draws.num_samples, tau, draws.exact)

    return {tau: estimate(tau) for tau in taus}
