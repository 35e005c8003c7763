"""What predictions of the replication are made of: log-probabilities at all indices, and the parts of their entropy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped

from epinet_eqx import AbstractENN, Draws

BATCH = 100
"""Images whose outputs at all indices are held at a time."""


def taken(x: PyTree[np.ndarray], positions: slice | Int[np.ndarray, " images"]) -> PyTree[np.ndarray]:
    """Return some of the inputs."""
    return jax.tree.map(lambda leaf: leaf[positions], x)


def outputs_of(
    enn: AbstractENN, zs: Shaped[Array, "samples ..."], x: PyTree[Array]
) -> Float[Array, "batch samples classes"]:
    """Return the outputs of an ENN for a batch, at given indices."""
    return jax.vmap(lambda embedding: enn.heads(embedding, zs))(jax.vmap(enn.embed)(x))


@eqx.filter_jit
def _batch_log_probs(
    enn: AbstractENN, zs: Shaped[Array, "samples ..."], x: PyTree[Array], temperature: Array
) -> Float[Array, "batch samples classes"]:
    """Return the log-probabilities of all classes at all indices."""
    return jax.nn.log_softmax(outputs_of(enn, zs, x) / temperature)


def log_probs(
    enn: AbstractENN, draws: Draws, x: PyTree[np.ndarray], temperature: float
) -> Float[np.ndarray, "images samples classes"]:
    """Return the log-probabilities of all classes at all indices, of images that are few enough to hold them."""
    zs = draws.indices()
    count = len(jax.tree.leaves(x)[0])
    size = min(BATCH, count)
    found = []
    for start in range(0, count, size):
        first = min(start, count - size)
        own = jax.tree.map(lambda leaf, first=first: jnp.asarray(leaf[first : first + size]), x)
        found.append(np.asarray(_batch_log_probs(enn, zs, own, jnp.asarray(temperature)))[start - first :])
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
