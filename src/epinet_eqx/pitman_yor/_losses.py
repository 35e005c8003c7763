"""Exact log-losses: averages over the index in closed form, as if M were infinite."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from .._checks import as_real_array, check_finite, check_positive, check_scalar
from .._counts import dyadic_cases
from .._draws import map_batches
from .._examples import check_examples, check_targets
from .._likelihoods import CATEGORICAL
from ..metrics import Estimate, LogLosses
from ._head import PitmanYor, check_head
from ._urn import check_alpha, repeat_log_probs

# Numbers in memory while the clusters of a batch are summed over.
_BATCH_TERMS = 2**24


def anchor_loss(log_w: Float[Array, ""], alpha: Float[Array, ""], tau: int) -> Float[Array, ""]:
    """Return the contribution of one of the two anchors to the dyadic loss: the mean over how many draws fall on it."""
    _, weights = dyadic_cases(tau)
    return -weights @ repeat_log_probs(log_w, alpha, tau)


@eqx.filter_jit
def _values(
    logits: Float[Array, "batch classes"],
    y: Int[Array, " batch"],
    alpha: Float[Array, "*batch"],
    temperature: Float[Array, ""],
    tau: int,
) -> tuple[Array, Array, Array]:
    """Return marginal loss and error of each example, and joint loss of each pair."""
    log_p = jax.nn.log_softmax(logits / temperature)
    log_w = jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
    size = max(1, _BATCH_TERMS // (tau + 1) ** 2)
    if alpha.ndim:
        own = jax.lax.map(lambda pair: anchor_loss(pair[0], pair[1], tau), (log_w, alpha), batch_size=size)
    else:
        own = jax.lax.map(lambda log_w: anchor_loss(log_w, alpha, tau), log_w, batch_size=size)
    wrong = (jnp.argmax(log_p, axis=1) != y).astype(log_p.dtype)
    return -log_w, wrong, jnp.sum(own.reshape(-1, 2), axis=1)


def logits_log_losses(
    logits: Float[ArrayLike, "batch classes"],
    y: Int[ArrayLike, " batch"],
    *,
    alpha: float | Float[Array, ""] | Float[Array, " batch"],
    temperature: float | Float[Array, ""] = 1.0,
    tau: int = 10,
) -> LogLosses:
    r"""Return exact log-losses of the Pitman-Yor head from stored logits: no features, no index, no key.

    The two anchors of a pair have independent noise, the limit of a length scale of zero. The marginal loss is that of
    the base at this temperature.

    Args:
        logits: outputs of the base, an even number of rows; consecutive ones are pairs.
        y: labels.
        alpha: the aleatoric share, in [0.001, 1], one for all inputs or one for each.
        temperature: divides the logits.
        tau: number of labels that are predicted jointly.
    """
    check_positive("tau", tau)
    outputs: Array = check_finite("logits", as_real_array("logits", logits))
    shares = check_alpha(alpha)
    if outputs.ndim != 2 or outputs.shape[1] < 2 or outputs.shape[0] == 0 or outputs.shape[0] % 2:
        raise ValueError(
            f"`logits` must have one row per example, an even number, and at least 2 classes; got {outputs.shape}."
        )
    labels = as_real_array("y", y)
    if labels.shape != outputs.shape[:1]:
        raise ValueError(f"`y` must hold one label per row of `logits`, {outputs.shape[0]}; got shape {labels.shape}.")
    if shares.ndim and shares.shape != labels.shape:
        raise ValueError(f"`alpha` must be a number or one per example, {labels.shape[0]}; got shape {shares.shape}.")
    labels = CATEGORICAL.check_targets(labels, outputs.shape[1])
    divisor = check_scalar("temperature", temperature, minimum=1e-6, dtype=outputs.dtype)
    marginal, wrong, joint = _values(outputs, labels, shares, divisor, tau)
    return LogLosses(
        Estimate(marginal, math.inf, 1, True), Estimate(joint, math.inf, tau, True), Estimate(wrong, math.inf, 1, True)
    )


@eqx.filter_jit
def _run_enn(enn: PitmanYor, x: PyTree[Array], length: int, batch_size: int) -> tuple[Array, Array]:
    def at(x: PyTree[Array]) -> tuple[Array, Array]:
        embeddings = jax.vmap(enn.embed)(x)
        return embeddings.logits, embeddings.alpha

    return map_batches(at, x, length=length, batch_size=batch_size)


def tempered_outputs(
    enn: PitmanYor, x: PyTree[ArrayLike], *, batch_size: int = 128
) -> tuple[Float[Array, "batch classes"], Float[Array, " batch"]]:
    """Return the parameters of exact predictions: logits divided by the temperature, and `alpha` at each input.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis.
        batch_size: how many examples are computed at a time.
    """
    check_positive("batch_size", batch_size)
    check_head(enn)
    examples = check_examples(enn, "x", x)
    logits, alpha = _run_enn(enn, examples.x, examples.length, batch_size)
    return check_finite("logits", logits), alpha


def log_losses(
    enn: PitmanYor,
    x: PyTree[ArrayLike],
    y: Int[ArrayLike, " batch"],
    *,
    tau: int = 10,
    batch_size: int = 128,
) -> LogLosses:
    """Return exact marginal log-loss, dyadic joint log-loss and classification error, without index samples.

    What `metrics.log_losses` tends to as the number of indices grows, for anchors that are far apart compared with the
    length scale: here they are independent.

    Args:
        enn: the ENN.
        x: inputs, an array or a tree of arrays with a leading batch axis of even length; consecutive pairs are anchors.
        y: labels.
        tau: number of labels that are predicted jointly.
        batch_size: how many examples are computed at a time.
    """
    check_head(enn)
    examples = check_examples(enn, "x", x)
    y = check_targets(CATEGORICAL, y, examples)
    logits, alpha = tempered_outputs(enn, x, batch_size=batch_size)
    return logits_log_losses(logits, y, alpha=alpha, tau=tau)
