"""Deep ensembles (Section 3.2)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .._enn import AbstractENN
from .._stack import num_stacked, stack, take
from ..indices import ParticleIndex


def _output(particle: Callable[..., Float[Array, " classes"]], x: PyTree[Array]) -> Float[Array, " classes"]:
    """Return the output of one particle: a network, or an ENN with one value of the index."""
    return particle(x, jnp.zeros((), int)) if isinstance(particle, AbstractENN) else particle(x)


class Ensemble(AbstractENN):
    """Particles of one structure, one of which the index picks, all equally likely.

    The BNN whose distribution puts equal weight on finitely many parameters. Particles are networks, or ENNs with one
    value of the index: `WithPrior` particles make "ensemble+". A shared trunk runs once per input, in `embed`.
    """

    particles: Callable[..., Float[Array, " classes"]]
    trunk: Callable[[PyTree[Array]], PyTree[Array]] | None
    index: ParticleIndex

    def __init__(
        self,
        particles: Callable[..., Float[Array, " classes"]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ):
        """Initialize from stacked particles.

        Args:
            particles: a module that maps one example to its output, with a leading axis on every array, as
                `eqx.filter_vmap(make_particle)(keys)` makes it.
            trunk: maps one example to the input of the particles; by default that is the example itself.
        """
        if isinstance(particles, AbstractENN) and particles.index != ParticleIndex(1):
            raise ValueError(
                "`particles` must be networks, or ENNs with one value of the index such as `Deterministic`; "
                f"got {type(particles).__name__} with index {particles.index}."
            )
        self.particles = particles
        self.trunk = trunk
        self.index = ParticleIndex(num_stacked("particles", particles))

    @classmethod
    def of(
        cls,
        particles: Sequence[Callable[..., Any]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ) -> "Ensemble":
        """Return the ensemble of separately trained modules, which must have one structure."""
        return cls(stack("particles", particles), trunk)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the input of all particles: the example, or the output of the trunk."""
        return x if self.trunk is None else self.trunk(x)

    def heads(self, embedding: PyTree[Array], zs: Int[Array, " samples"]) -> Float[Array, "samples classes"]:
        """Return the outputs of many particles, without running any more often than there are particles."""
        self.index.check(zs)
        if zs.shape[0] < self.index.num_particles:
            return jax.vmap(lambda z: _output(take(self.particles, z), embedding))(zs)
        return eqx.filter_vmap(lambda particle: _output(particle, embedding))(self.particles)[zs]
