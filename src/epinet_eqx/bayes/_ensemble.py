"""Deep ensembles (Section 3.2)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PyTree

from .._enn import AbstractENN
from .._stack import num_stacked, stack, take
from ..indices import ParticleIndex


class Ensemble(AbstractENN):
    """Particles of one structure, one of which the index picks, all equally likely.

    The BNN whose distribution puts equal weight on finitely many parameters. With `NetworkWithPrior` particles it is
    "ensemble+". A trunk that the particles share runs once per input, in `embed`.
    """

    particles: Callable[[PyTree[Array]], Float[Array, " classes"]]
    trunk: Callable[[PyTree[Array]], PyTree[Array]] | None
    index: ParticleIndex

    def __init__(
        self,
        particles: Callable[[PyTree[Array]], Float[Array, " classes"]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ):
        """Initialize from stacked particles.

        Args:
            particles: a module that maps one example to its output, with a leading axis on every array, as
                `eqx.filter_vmap(make_particle)(keys)` makes it.
            trunk: maps one example to what the particles see; by default they see the example itself.
        """
        self.particles = particles
        self.trunk = trunk
        self.index = ParticleIndex(num_stacked("particles", particles))

    @classmethod
    def of(
        cls,
        particles: Sequence[Callable[[PyTree[Array]], Any]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ) -> "Ensemble":
        """Return the ensemble of separately trained modules, which must have one structure."""
        return cls(stack("particles", particles), trunk)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return what all particles see: the input, or the output of the trunk."""
        return x if self.trunk is None else self.trunk(x)

    def heads(self, embedding: PyTree[Array], zs: Int[Array, " samples"]) -> Float[Array, "samples classes"]:
        """Return the outputs of many particles, without running any more often than there are particles."""
        self.index.check(zs)
        if zs.shape[0] < self.index.num_particles:
            return jax.vmap(lambda z: take(self.particles, z)(embedding))(zs)
        return eqx.filter_vmap(lambda particle: particle(embedding))(self.particles)[zs]
