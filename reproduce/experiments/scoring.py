"""How every image protocol judges: exact dyadic losses, outputs that are stored, and one rule of choice.

In memory, on a mesh or from a bank, an agent is an ENN with the batches it reads; nothing else is said of it here.
"""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws
from epinet_eqx.indices import ParticleIndex
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import LossGrid, loss_grid

TAU = 10
"""Number of labels that are predicted together."""


class StoredParticles(AbstractENN):
    """An ensemble whose outputs are stored side by side: the index is the number of a particle."""

    index: ParticleIndex

    def __init__(self, num_particles: int):
        """Initialize with the number of particles."""
        self.index = ParticleIndex(num_particles)

    def embed(self, x: Float[Array, "particles classes"]) -> Float[Array, "particles classes"]:
        """Return the outputs of all particles."""
        return x

    def heads(
        self, embedding: Float[Array, "particles classes"], zs: Int[Array, " samples"]
    ) -> Float[Array, "samples classes"]:
        """Return the outputs of these particles."""
        return embedding[zs]


def particles_batch(batches: Sequence[Batch]) -> Batch:
    """Return the stored logits of several networks for the same images, as input of `StoredParticles`."""
    logits = jnp.stack([jnp.asarray(batch.x["logits"]) for batch in batches], axis=1)
    return Batch(logits, batches[0].y, batches[0].i)


def draws_of(enn: AbstractENN, num_samples: int, *, key: PRNGKeyArray, chunk_size: int = 16) -> Draws:
    """Return all indices of a finite support, however many, or sampled ones, a few of which are computed at a time."""
    finite = enn.index.support() is not None
    return Draws.all(enn.index) if finite else Draws.sample(enn.index, num_samples, key=key, chunk_size=chunk_size)


def losses_of(
    enn: AbstractENN,
    batches: Iterable[Batch],
    draws: Draws,
    *,
    temperatures: Sequence[float] = (1.0,),
    taus: tuple[int, ...] = (TAU,),
    counts: tuple[int, ...] | None = None,
    with_error: bool = True,
) -> LossGrid:
    """Return the losses of all batches together, as arrays of the host.

    Args:
        enn: the ENN.
        batches: what it is judged on; pairs are never cut.
        draws: its indices.
        temperatures: what outputs are divided by.
        taus: numbers of labels that are predicted jointly.
        counts: increasing numbers of indices M, ignored where the average over the index is exact.
        with_error: whether the classification error is asked for, too.
    """
    used = None if draws.exact else counts
    options = {"temperatures": temperatures, "taus": taus, "sample_counts": used, "with_error": with_error}
    grids = [jax.device_get(loss_grid(enn, own.x, own.y, draws, **options)) for own in batches]
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *grids)


def values_at(found: LossGrid, place: int, tau: int = TAU) -> dict[str, Float[np.ndarray, "counts values"]]:
    """Return the losses at one of the temperatures by their names: of each image, and the joint one of each pair."""
    named = {"error": found.error, "marginal": found.marginal, "joint": found.joint[tau]}
    return {name: np.asarray(values[place]) for name, values in named.items() if values is not None}


def mean_losses(
    enn: AbstractENN, batches: Iterable[Batch], draws: Draws, temperatures: Sequence[float]
) -> tuple[Float[np.ndarray, " temperatures"], Float[np.ndarray, " temperatures"]]:
    """Return mean marginal and joint losses at some temperatures."""
    found = losses_of(enn, batches, draws, temperatures=temperatures, with_error=False)
    return np.asarray(found.marginal[:, -1].mean(axis=-1)), np.asarray(found.joint[TAU][:, -1].mean(axis=-1))


def best_place(
    marginal: Sequence[float] | Float[np.ndarray, " settings"],
    joint: Sequence[float] | Float[np.ndarray, " settings"],
    limit: float,
) -> int:
    """Return the place of the lowest joint loss whose marginal loss is within a limit.

    Where none is, that of the lowest marginal loss. The paper tunes every method for its joint loss, subject to its
    marginal loss.
    """
    own = np.asarray(marginal, np.float64)
    return int(np.lexsort([np.asarray(joint, np.float64), np.where(own <= limit, 0.0, own - limit)])[0])


def choose_temperature(
    enn: AbstractENN, held_out: Iterable[Batch], draws: Draws, temperatures: Sequence[float]
) -> float:
    """Return the best of some temperatures on held-out data whose marginal loss is no worse than at temperature 1."""
    marginal, joint = mean_losses(enn, held_out, draws, temperatures)
    return temperatures[best_place(marginal, joint, marginal[list(temperatures).index(1.0)])]


def summary(values: Float[np.ndarray, " groups"]) -> tuple[float, float]:
    """Return the mean, and its standard error over images or pairs."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
