"""Losses of the replication: one pass over images and indices for all temperatures, tau and M at once."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from epinet_eqx import AbstractENN, Draws
from epinet_eqx.metrics import loss_grid

from .banked import StoredParticles

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
        counts: increasing numbers of indices M; the last is that of all indices.
    """
    if isinstance(outputs, Stored):
        enn: AbstractENN = StoredParticles(x.shape[1])
        draws = Draws.all(enn.index, batch_size=_BATCH)
    else:
        enn, draws = outputs.enn, Draws.given(outputs.enn.index, outputs.zs, batch_size=_BATCH)
    grid = loss_grid(enn, x, y, draws, temperatures=temperatures, taus=taus, sample_counts=counts)
    return Losses(*jax.device_get((grid.marginal, grid.error, grid.joint)))


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
