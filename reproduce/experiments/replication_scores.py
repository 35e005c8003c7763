"""Losses of the replication: one pass over images and indices for all temperatures, tau and M at once.

It is the formula of `epinet_eqx.metrics` (a test holds the two together), arranged so that outputs are computed once.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from epinet_eqx import AbstractENN

# Images whose outputs at all indices are held at a time.
_BATCH = 100


class Outputs(eqx.Module):
    """The outputs of an ENN at given indices."""

    enn: AbstractENN
    zs: Float[Array, "samples index"]

    def __call__(self, x: PyTree[Array]) -> Float[Array, "batch samples classes"]:
        """Return the outputs for a batch."""
        return jax.vmap(lambda embedding: self.enn.heads(embedding, self.zs))(jax.vmap(self.enn.embed)(x))


class Stored(eqx.Module):
    """Outputs that are there already: those of the particles of an ensemble, all equally likely."""

    def __call__(self, x: Float[Array, "batch particles classes"]) -> Float[Array, "batch particles classes"]:
        """Return the outputs for a batch."""
        return x


class Losses(NamedTuple):
    """Losses of single labels and of pairs, for each temperature and M.

    Attributes:
        marginal: log-loss of each image.
        wrong: one where the most probable class is not the label.
        joint: for each tau, the exact dyadic log-loss of each pair of consecutive images, in total nats.
    """

    marginal: Float[np.ndarray, "temperatures counts images"]
    wrong: Float[np.ndarray, "temperatures counts images"]
    joint: dict[int, Float[np.ndarray, "temperatures counts pairs"]]


def _allocations(tau: int) -> tuple[Float[Array, "cases 2"], Float[Array, " cases"]]:
    """Return how tau draws can fall on two images, and the binomial probability of each way."""
    first = jnp.arange(tau + 1, dtype=float)
    return jnp.stack([first, tau - first], axis=1), jnp.asarray([math.comb(tau, k) / 2**tau for k in range(tau + 1)])


def _log_means(log_p: Float[Array, "samples ..."], counts: tuple[int, ...]) -> Float[Array, "counts ..."]:
    """Return the logarithms of the means over the first `counts` samples, from one pass over them."""
    starts = (0, *counts[:-1])
    parts = [jax.nn.logsumexp(log_p[start:stop], axis=0) for start, stop in zip(starts, counts, strict=True)]
    sums = [parts[0]]
    for part in parts[1:]:
        sums.append(jnp.logaddexp(sums[-1], part))
    return jnp.stack([total - jnp.log(float(count)) for total, count in zip(sums, counts, strict=True)])


@eqx.filter_jit
def _batch_losses(
    outputs: Any,
    x: PyTree[Array],
    y: Int[Array, " batch"],
    temperatures: Float[Array, " temperatures"],
    taus: tuple[int, ...],
    counts: tuple[int, ...],
) -> tuple[Array, Array, dict[int, Array]]:
    """Return the losses of a batch of consecutive pairs."""
    logits = outputs(x)

    def at(temperature: Array) -> tuple[Array, Array, dict[int, Array]]:
        log_p = jax.nn.log_softmax(logits / temperature)
        probs = [jnp.sum(jnp.exp(log_p[:, :count]), axis=1) for count in counts]
        wrong = jnp.stack([(jnp.argmax(p, axis=-1) != y).astype(float) for p in probs])
        own = jnp.take_along_axis(log_p, y[:, None, None], axis=2)[:, :, 0].T
        pairs = own.reshape(own.shape[0], -1, 2)
        joint = {}
        for tau in taus:
            cases, weights = _allocations(tau)
            log_joint = _log_means(jnp.einsum("mpa,ca->mpc", pairs, cases), counts)
            joint[tau] = -log_joint @ weights
        return -_log_means(own, counts), wrong, joint

    return jax.lax.map(at, temperatures)


def losses(
    outputs: Any,
    x: PyTree[np.ndarray],
    y: Int[np.ndarray, " images"],
    *,
    temperatures: tuple[float, ...],
    taus: tuple[int, ...],
    counts: tuple[int, ...],
) -> Losses:
    """Return all losses.

    Args:
        outputs: `Outputs` or `Stored`.
        x: inputs with a leading axis of images, an even number of them; consecutive ones are pairs.
        y: labels.
        temperatures: what outputs are divided by.
        taus: numbers of labels that are predicted jointly.
        counts: increasing numbers of indices M; the last is the number of all.
    """
    size = min(_BATCH, len(y))
    found = []
    for start in range(0, len(y), size):
        # The last batch is filled up by what comes before it, so that one program does for all.
        at = slice(min(start, len(y) - size), min(start, len(y) - size) + size)
        seen, labels = jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at]), (x, y))
        new = start - at.start
        batch = _batch_losses(outputs, seen, labels, jnp.asarray(temperatures), taus, counts)
        marginal, wrong, joint = jax.device_get(batch)
        found.append((marginal[..., new:], wrong[..., new:], {t: v[..., new // 2 :] for t, v in joint.items()}))
    return Losses(
        np.concatenate([f[0] for f in found], axis=-1),
        np.concatenate([f[1] for f in found], axis=-1),
        {tau: np.concatenate([f[2][tau] for f in found], axis=-1) for tau in taus},
    )


def summary(values: Float[np.ndarray, " groups"]) -> tuple[float, float]:
    """Return the mean, and its standard error over images or pairs."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


@eqx.filter_jit
def _batch_log_probs(outputs: Any, x: PyTree[Array], temperature: Array) -> Float[Array, "batch samples classes"]:
    """Return the log-probabilities of all classes at all indices."""
    return jax.nn.log_softmax(outputs(x) / temperature)


def log_probs(outputs: Any, x: PyTree[np.ndarray], temperature: float) -> Float[np.ndarray, "images samples classes"]:
    """Return the log-probabilities of all classes at all indices, of images that are few enough to hold them."""
    count = len(jax.tree.leaves(x)[0])
    size = min(_BATCH, count)
    found = []
    for start in range(0, count, size):
        first = min(start, count - size)
        own = jax.tree.map(lambda leaf, first=first: jnp.asarray(leaf[first : first + size]), x)
        found.append(np.asarray(_batch_log_probs(outputs, own, jnp.asarray(temperature)))[start - first :])
    return np.concatenate(found)


def log_mean(log_p: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """Return the logarithm of the mean of what is given by its logarithms."""
    top = log_p.max(axis=axis, keepdims=True)
    return np.log(np.mean(np.exp(log_p - top), axis=axis)) + np.squeeze(top, axis=axis)


def decompose(log_p: Float[np.ndarray, "images samples classes"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the log-probabilities of the average prediction, and the aleatoric and epistemic part of its entropy."""
    mixture = log_mean(log_p, axis=1)
    aleatoric = -np.mean(np.sum(np.exp(log_p) * log_p, axis=-1), axis=1)
    total = -np.sum(np.exp(mixture) * mixture, axis=-1)
    return mixture, aleatoric, np.maximum(total - aleatoric, 0.0)
