"""The index of a network with random masks: a random key."""

import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._keys import named_keys
from ._abstract import AbstractIndex


class KeyIndex(AbstractIndex):
    """$z$ is a random key: the index of an ENN that draws what it needs, such as dropout masks, from it."""

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
        """Return a normal variable drawn from `z`, another one for each `key`."""
        (stream,) = named_keys(z, "score")
        return jr.normal(jr.fold_in(stream, jr.bits(key)))

    def support(self) -> None:
        """Return None: keys are too many to enumerate."""
        return None
