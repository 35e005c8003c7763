"""A conventional network as an ENN (Section 3)."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._enn import AbstractENN
from ..indices import ParticleIndex


class Deterministic(AbstractENN):
    """A conventional network as the ENN that ignores its index: its joint predictions are the products of Eq. (1)."""

    network: Callable[[PyTree[Array]], Float[Array, " classes"]]
    index: ParticleIndex

    def __init__(self, network: Callable[[PyTree[Array]], Float[Array, " classes"]]):
        """Initialize with a network, any callable that maps one example to its output."""
        self.network = network
        self.index = ParticleIndex(1)

    def embed(self, x: PyTree[Array]) -> Float[Array, " classes"]:
        """Return the output of the network."""
        return self.network(x)

    def heads(self, embedding: Float[Array, " classes"], zs: Int[Array, " samples"]) -> Float[Array, "samples classes"]:
        """Return the output of the network, once per index."""
        return jnp.broadcast_to(embedding, (zs.shape[0], *embedding.shape))
