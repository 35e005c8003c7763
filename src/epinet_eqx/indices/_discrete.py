"""The index of an ensemble: which particle."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from .._checks import check_positive, check_shape, is_traced, require
from ._abstract import AbstractIndex


class ParticleIndex(AbstractIndex):
    r"""$z$ uniform over the particles $0, \ldots, K - 1$ (Section 3.2)."""

    num_particles: int = eqx.field(static=True)

    def __init__(self, num_particles: int):
        """Initialize with the number of particles."""
        check_positive("num_particles", num_particles)
        self.num_particles = num_particles

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one index: a scalar."""
        return ()

    @property
    def size(self) -> int:
        """The number of particles."""
        return self.num_particles

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, ""]:
        """Draw one particle."""
        return jr.randint(key, (), 0, self.num_particles)

    def score(self, z: Int[Array, ""], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Return a normal variable of this key's, one per particle."""
        return jr.normal(jr.fold_in(key, z))

    def support(self) -> Int[Array, " particles"]:
        """Return every particle once: the average over these is exact, without sampling."""
        return jnp.arange(self.num_particles)

    def check(self, zs: Int[Array, " samples"]) -> None:
        """Raise unless `zs` holds particles, as far as their values are known."""
        check_shape("zs", zs, (zs.shape[0],))
        if not is_traced(zs):
            outside = (zs < 0) | (zs >= self.num_particles)
            require(zs, jnp.any(outside), f"`zs` must hold particles from 0 to {self.num_particles - 1}; got {zs}.")


class TupleIndex(AbstractIndex):
    """Several independent indices as one, along a leading axis."""

    index: AbstractIndex
    length: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all of them."""
        return (self.length, *self.index.shape)

    @property
    def size(self) -> int:
        """The number of entries of all of them."""
        return self.length * self.index.size

    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "samples ..."]:
        """Draw all of them."""
        return self.index.sample_many(self.length, key=key)

    def score(self, z: Shaped[Array, "samples ..."], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Return the sum of a score of each, over the root of their number."""
        keys = jax.vmap(lambda number: jr.fold_in(key, number))(jnp.arange(self.length))
        scores = jax.vmap(lambda z, key: self.index.score(z, key=key))(z, keys)
        return jnp.sum(scores) / self.length**0.5

    def support(self) -> None:
        """Return None: the combinations of several indices are too many to enumerate."""
        return None
