"""The reference distribution of Section 3."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from .._checks import check_positive


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
        r"""Return a function of `z` that is standard normal for $z \sim P_Z$, another one for each key.

        For a Gaussian index it is $c^\top z$ with $c$ uniform on the unit sphere, drawn from `key`. Every bootstrap of
        Section 4.2 is a function of this score, so it works with every index that has one.
        """

    @abc.abstractmethod
    def support(self) -> Shaped[Array, "values ..."] | None:
        """Return every index once if they are finitely many and equally likely, otherwise None."""

    def sample_many(
        self, num_samples: int, *, key: PRNGKeyArray, start: int | Shaped[Array, ""] = 0
    ) -> Shaped[Array, "samples ..."]:
        """Draw the indices numbered `start` to `start + num_samples - 1` of the sequence that `key` stands for.

        Each depends on the key and its own number only: a longer sequence begins with the shorter one, and chunks of it
        can be drawn one after another.
        """
        check_positive("num_samples", num_samples)
        numbers = jnp.arange(num_samples) + start
        return jax.vmap(lambda number: self.sample(key=jr.fold_in(key, number)))(numbers)


def unit_vector(dim: int, *, key: PRNGKeyArray) -> Float[Array, " index"]:
    """Draw a vector uniformly from the unit sphere."""
    direction = jr.normal(key, (dim,))
    return direction / jnp.linalg.norm(direction)
