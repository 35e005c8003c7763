r"""The Pitman-Yor urn: exact joint probabilities of labels at one repeated input, without any index.

The labels at one input fall on clusters: a new label joins a cluster of $m$ labels with a probability proportional to
$m - \alpha$, and opens a new one with a probability proportional to $\alpha$ times the number of clusters. Each cluster
draws its class from the base's prediction $w$. Discount $\alpha$, strength 0.
"""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float, Int

from .._checks import as_known_real, as_real_array, check_finite, check_shape, is_traced, on_host, require
from .._counts import MAX_LABELS, check_num_labels

MIN_ALPHA = 1e-3
"""The smallest `alpha` that is accepted: below it every quantity is its limit at 0, to rounding."""

# By how much the logarithm of a probability may exceed 0.
_ROUNDING = 1e-5
# Finite stand-in for -inf: no difference of two of them is NaN, and neither is a gradient.
_IMPOSSIBLE = -1e30


def check_alpha(alpha: Any) -> Float[Array, "*batch"]:
    """Return `alpha` as an array, which must lie in the range in which everything is finite."""
    value = alpha if is_traced(alpha) else as_real_array("alpha", alpha)
    if value.dtype == bool:
        raise ValueError(f"`alpha` must be a number; got {alpha!r}.")
    value = value.astype(float)
    number = on_host(value)
    outside = ~((number >= MIN_ALPHA) & (number <= 1)).all()
    found = "" if is_traced(outside) or value.size == 0 else f"; got {float(number.min()):g}"
    if not is_traced(outside) and value.size > 1:
        found = f"; got values from {float(number.min()):g} to {float(number.max()):g}"
    return require(value, outside, f"`alpha` must be at least {MIN_ALPHA:g} and at most 1{found}.")


def known_alpha(alpha: Any) -> Float[Array, ""]:
    """Return one `alpha` as an array, checked unless it is traced: for functions that compiled programs call."""
    if not is_traced(alpha):
        checked = check_alpha(alpha)
        keeps_type = isinstance(alpha, Array) and jnp.issubdtype(alpha.dtype, jnp.floating)
        alpha = checked.astype(jnp.asarray(alpha).dtype) if keeps_type else checked
    check_shape("alpha", alpha, ())
    return alpha


def _log(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the logarithm, with a finite value and no gradient where `x` is not positive."""
    positive = x > 0
    return jnp.where(positive, jnp.log(jnp.where(positive, x, 1.0)), _IMPOSSIBLE)


def log_num_clusters(alpha: float | Float[Array, ""], max_count: int) -> Float[Array, "counts clusters"]:
    r"""Return the log-probability that $n$ labels at one input are in $t$ clusters, entry `[n, t]`, up to `max_count`.

    $G(n + 1, t) = (1 - \alpha t / n)\, G(n, t) + \alpha (t - 1) / n\; G(n, t - 1)$. All terms are probabilities, so the
    recursion neither cancels nor overflows. Impossible entries are -1e30.

    Args:
        alpha: the discount, in [0.001, 1]; derivatives are finite, also at 1.
        max_count: largest number of labels; static.
    """
    check_num_labels("max_count", max_count)
    alpha = known_alpha(alpha)
    clusters = jnp.arange(max_count + 1, dtype=alpha.dtype)

    def step(row: Float[Array, " clusters"], count: Float[Array, ""]) -> tuple[Array, Array]:
        # Both terms are positive: 1 - alpha t / n itself would lose all digits at t = n near alpha = 1.
        joins = _log((count - clusters) / count + (1 - alpha) * clusters / count)
        joins = jnp.where(clusters <= count, joins, _IMPOSSIBLE) + row
        opens = _log(alpha * (clusters - 1) / count) + jnp.roll(row, 1)
        following = jnp.maximum(jnp.logaddexp(joins, opens), _IMPOSSIBLE)
        return following, following

    first = jnp.where(clusters == 1, 0.0, _IMPOSSIBLE)
    _, rest = jax.lax.scan(step, first, jnp.arange(1, max_count, dtype=alpha.dtype))
    none = jnp.where(clusters == 0, 0.0, _IMPOSSIBLE)
    return jnp.concatenate([none[None], first[None], rest])


def log_stirling(alpha: float | Float[Array, ""], max_count: int) -> Float[Array, "counts clusters"]:
    r"""Return logarithms of the generalized Stirling numbers $S_\alpha(n, t)$, entry `[n, t]`, up to `max_count`.

    $S_\alpha(n + 1, t) = (n - \alpha t)\, S_\alpha(n, t) + S_\alpha(n, t - 1)$ with $S_\alpha(0, 0) = 1$; entries that
    are zero have the logarithm -inf.

    Args:
        alpha: the discount, in [0.001, 1].
        max_count: largest number of labels; static.
    """
    value = check_alpha(alpha)
    log_probs = log_num_clusters(value, max_count)
    numbers = jnp.arange(max_count + 1, dtype=value.dtype)
    log_factorials = gammaln(jnp.maximum(numbers, 1.0))
    exponents = jnp.maximum(numbers - 1, 0.0)
    result = log_probs + log_factorials[:, None] - (exponents * jnp.log(value) + log_factorials)[None, :]
    return jnp.where(log_probs > _IMPOSSIBLE / 2, result, -jnp.inf)


def repeat_log_probs(
    log_w: float | Float[Array, ""], alpha: float | Float[Array, ""], max_count: int
) -> Float[Array, " counts"]:
    r"""Return the log-probability that $n$ labels at one input are all of one class, for $n$ from 0 to `max_count`.

    $E\, p_c^n = E\, w_c^T$ with $T$ the number of clusters. Mapped over inputs with one `alpha`, the distribution of
    $T$ is computed once.

    Args:
        log_w: log-probability of the class under the base.
        alpha: the discount, in [0.001, 1].
        max_count: largest number of labels; static.
    """
    check_num_labels("max_count", max_count)
    log_w = as_known_real("log_w", log_w, ())
    if not is_traced(log_w) and float(log_w) > _ROUNDING:
        raise ValueError(f"`log_w` must be a log-probability, at most 0; got {float(log_w):g}.")
    clusters = jnp.arange(max_count + 1, dtype=log_w.dtype)
    return jax.nn.logsumexp(log_num_clusters(alpha, max_count) + (clusters * log_w)[None, :], axis=1)


def _as_counts(counts: Any) -> Int[Array, "..."]:
    """Return counts, which must be integers, none of them negative if they are known."""
    if is_traced(counts):
        return counts
    found = as_real_array("counts", counts)
    if not jnp.issubdtype(found.dtype, jnp.integer):
        raise ValueError(f"`counts` must hold integers; got {found.dtype}.")
    known = on_host(found)
    if known.size and known.min() < 0:
        raise ValueError(f"`counts` must not be negative; got {int(known.min())}.")
    return found


def counts_log_prob(
    logits: Float[ArrayLike, " classes"],
    counts: Int[ArrayLike, " classes"],
    alpha: float | Float[Array, ""],
    max_count: int,
) -> Float[Array, ""]:
    r"""Return the log-probability of labels at one input, in any given order, of which `counts[c]` are of class c.

    $\sum_{t} \alpha^{T - 1} \frac{(T - 1)!}{(n - 1)!} \prod_c S_\alpha(n_c, t_c)\, w_c^{t_c}$ with one $t_c$ for each
    class that occurs and $T = \sum_c t_c$: a convolution over $T$, in logarithms.

    Args:
        logits: output of the base.
        counts: number of labels of each class.
        alpha: the discount, in [0.001, 1].
        max_count: at least the number of all labels; static.
    """
    check_num_labels("max_count", max_count)
    logits, alpha, counts = as_known_real("logits", logits), known_alpha(alpha), _as_counts(counts)
    if logits.ndim != 1 or logits.shape != counts.shape:
        raise ValueError(
            f"`counts` must hold one number per class, like `logits` of shape {logits.shape}; got shape {counts.shape}."
        )
    if not is_traced(counts) and (total := int(on_host(counts).sum())) > max_count:
        raise ValueError(f"`max_count` must be at least the number of labels, {total}; got {max_count}.")
    table = log_num_clusters(alpha, max_count)
    clusters = jnp.arange(max_count + 1)
    numbers = clusters.astype(logits.dtype)
    log_factorials = gammaln(jnp.maximum(numbers, 1.0))
    lags = clusters[:, None] - clusters[None, :]
    # There cannot be more classes than labels.
    counts, classes = jax.lax.top_k(counts, min(counts.shape[0], max_count))

    def step(total: Float[Array, " clusters"], own: tuple[Array, Array]) -> tuple[Array, None]:
        count, log_w = own
        terms = table[count] - log_factorials + numbers * log_w
        shifted = jnp.where(lags >= 0, total[jnp.maximum(lags, 0)], _IMPOSSIBLE)
        return jnp.maximum(jax.nn.logsumexp(shifted + terms[None, :], axis=1), _IMPOSSIBLE), None

    start = jnp.where(clusters == 0, 0.0, _IMPOSSIBLE).astype(logits.dtype)
    total, _ = jax.lax.scan(step, start, (counts, jax.nn.log_softmax(logits)[classes]))
    num_present = jnp.sum(counts > 0).astype(logits.dtype)
    # Each class has its own power of alpha and its own factorial in `table`; the labels together have one of each.
    scale = jnp.maximum(num_present - 1, 0.0) * jnp.log(alpha)
    scale = scale + jnp.sum(log_factorials[counts]) - log_factorials[jnp.sum(counts)]
    return jax.nn.logsumexp(total + log_factorials) + scale


@ft.partial(jax.jit, static_argnames="max_count")
def _joint_log_prob(
    logits: Float[Array, "anchors classes"],
    counts: Int[Array, "anchors classes"],
    alpha: Float[Array, "*anchors"],
    max_count: int,
) -> Float[Array, ""]:
    def at(logits: Array, counts: Array, alpha: Array) -> Array:
        return counts_log_prob(logits, counts, alpha, max_count)

    return jnp.sum(jax.vmap(at, in_axes=(0, 0, 0 if alpha.ndim else None))(logits, counts, alpha))


def joint_log_prob(
    logits: Float[ArrayLike, "anchors classes"],
    counts: Int[ArrayLike, "anchors classes"],
    alpha: float | Float[Array, ""] | Float[Array, " anchors"],
) -> Float[Array, ""]:
    """Return the exact log-probability of labels at several inputs, in any given order, the inputs independent.

    The number of orders of a multiset is not counted: add the logarithm of the multinomial coefficient for that.

    Args:
        logits: output of the base at each input, divided by its temperature.
        counts: how many labels of each class there are at each input; known values, since they set the size of sums.
        alpha: the share of uncertainty that is aleatoric, in [0.001, 1], one for all inputs or one for each.
    """
    logits, alpha = as_real_array("logits", logits), check_alpha(alpha)
    if is_traced(counts):
        raise ValueError("`counts` must be known when the program is compiled; use `counts_log_prob` inside of one.")
    counts = _as_counts(counts)
    if logits.ndim != 2 or logits.shape != counts.shape:
        raise ValueError(
            f"`counts` must have the shape (anchors, classes) of `logits`, {logits.shape}; got {counts.shape}."
        )
    if alpha.ndim and alpha.shape != logits.shape[:1]:
        raise ValueError(f"`alpha` must be a number or one per anchor, {logits.shape[0]}; got shape {alpha.shape}.")
    # NumPy adds 32 bits up in 64.
    max_count = max(1, int(np.asarray(counts).sum(axis=1).max(initial=0)))
    if max_count > MAX_LABELS:
        raise ValueError(f"`counts` must hold at most {MAX_LABELS} labels of an input; got {max_count}.")
    return _joint_log_prob(check_finite("logits", logits), counts, alpha, max_count)
