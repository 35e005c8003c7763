"""A replay buffer of the latest observations."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Shaped

from ..losses import Batch


class ReplayBuffer(eqx.Module):
    """A ring buffer; each observation keeps the number that identifies it to the bootstrap.

    The count of observations is an argument, not a field: it is shared by all members of a `vmap`, which then write to
    the same slot.
    """

    data: Batch

    @classmethod
    def empty(cls, x: PyTree[Any], y: Any, capacity: int) -> "ReplayBuffer":
        """Return a buffer of zeros for inputs and targets of these shapes."""

        def zeros(leaf: Any) -> Array:
            return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

        return cls(Batch(jax.tree.map(zeros, x), zeros(y), jnp.zeros(capacity, jnp.int32)))

    @property
    def capacity(self) -> int:
        """The number of observations that are kept."""
        return self.data.i.shape[-1]

    def add(self, number: Int[Array, ""], x: PyTree[Array], y: Shaped[Array, "..."]) -> "ReplayBuffer":
        """Return the buffer with observation `number`, counted from zero, in place of the oldest."""
        slot = number % self.capacity
        new = (x, y, number.astype(jnp.int32))
        old = (self.data.x, self.data.y, self.data.i)
        # Setting an entry would broadcast it.
        shapes = [jax.tree.map(lambda leaf: leaf.shape[1:], old[0]), jax.tree.map(jnp.shape, x)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"`x` must have the shape of a candidate, {shapes[0]}; got {shapes[1]}.")
        return ReplayBuffer(Batch(*jax.tree.map(lambda leaf, entry: leaf.at[slot].set(entry), old, new)))

    def sample(self, count: Int[Array, ""], batch_size: int, *, key: PRNGKeyArray) -> Batch:
        """Draw observations uniformly, with replacement, after `count` have been added."""
        slots = jr.randint(key, (batch_size,), 0, jnp.minimum(count, self.capacity))
        return jax.tree.map(lambda leaf: leaf[slots], self.data)
