"""The reference distribution of Section 3: its interface, and indices that are not vectors."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from .._checks import check_positive, check_shape, is_traced, require
from .._keys import named_keys


class AbstractIndex(eqx.Module):
    r"""A reference distribution $P_Z$ of the epistemic index $z$."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one index."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of entries of a vector index, or the number of values of a discrete one."""

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """Draw one index."""

    @abc.abstractmethod
    def score(self, z: Shaped[Array, "..."], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return a function of `z` that is standard normal for $z \sim P_Z$, a different one for each key.

        For a Gaussian index it is $c^\top z$ with $c$ uniform on the unit sphere, drawn from `key`. Every bootstrap of
        Section 4.2 is a function of this score, so bootstraps work with every index that has one.
        """

    @abc.abstractmethod
    def support(self) -> Shaped[Array, "values ..."] | None:
        """Return every index once if they are finitely many and equally likely, otherwise None."""

    def sample_many(
        self, num_samples: int, *, key: PRNGKeyArray, start: int | Shaped[Array, ""] = 0
    ) -> Shaped[Array, "samples ..."]:
        """Draw the indices numbered `start` to `start + num_samples - 1` of the sequence that `key` defines.

        Each depends only on the key and its own number: a longer sequence begins with the shorter one, and chunks of it
        can be drawn one after another.
        """
        check_positive("num_samples", num_samples)
        numbers = jnp.arange(num_samples) + start
        return jax.vmap(lambda number: self.sample(key=jr.fold_in(key, number)))(numbers)


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
        """Return a normal variable drawn from `key`, one per particle."""
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


class KeyIndex(AbstractIndex):
    """$z$ is a random key: the index of an ENN that draws from it what it needs, such as dropout masks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one index: a scalar."""
        return ()

    @property
    def size(self) -> int:
        """The number of entries: one key."""
        return 1

    def sample(self, *, key: PRNGKeyArray) -> PRNGKeyArray:
        """Draw one index, a key derived from `key`."""
        (z,) = named_keys(key, "index")
        return z

    def score(self, z: PRNGKeyArray, *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Return a normal variable drawn from `z`, a different one for each `key`."""
        (stream,) = named_keys(z, "score")
        return jr.normal(jr.fold_in(stream, jr.bits(key)))

    def support(self) -> None:
        """Return None: there are too many keys to enumerate."""
        return None


class TupleIndex(AbstractIndex):
    """Several independent indices as one, along a leading axis."""

    index: AbstractIndex
    length: int = eqx.field(static=True)

    def __init__(self, index: AbstractIndex, length: int):
        """Initialize with one of the indices, and how many there are."""
        if not isinstance(index, AbstractIndex):
            raise ValueError(f"`index` must be a reference distribution; got {type(index).__name__}.")
        check_positive("length", length)
        self.index = index
        self.length = length

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
        """Return the sum of the scores of all of them, divided by the root of their number."""
        keys = jax.vmap(lambda number: jr.fold_in(key, number))(jnp.arange(self.length))
        scores = jax.vmap(lambda z, key: self.index.score(z, key=key))(z, keys)
        return jnp.sum(scores) / self.length**0.5

    def support(self) -> None:
        """Return None: there are too many combinations to enumerate."""
        return None
