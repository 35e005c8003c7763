"""Which examples a step sees (Algorithm 1, line 2)."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, PRNGKeyArray

from .._checks import check_positive
from .._keys import named_keys


class AbstractBatches(eqx.Module):
    """A rule that says which examples each step sees, as a function of the key and the step only."""

    @abc.abstractmethod
    def ids(
        self,
        num_examples: int,
        data_size: Int[Array, ""] | None,
        start: Int[Array, ""],
        num_steps: int,
        *,
        key: PRNGKeyArray,
    ) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of steps `start` to `start + num_steps - 1`, or None for all data.

        Args:
            num_examples: length of the data.
            data_size: number of examples to draw from, if fewer than that.
            start: the first step.
            num_steps: number of steps.
            key: random key of the training.
        """


class UniformBatches(AbstractBatches):
    """Each example of a batch is drawn uniformly from the data, with replacement, as Algorithm 1 has it."""

    batch_size: int | None = eqx.field(static=True)

    def __init__(self, batch_size: int | None):
        """Initialize with the batch size; None means that each step sees all data, once."""
        if batch_size is not None:
            check_positive("batch_size", batch_size)
        self.batch_size = batch_size

    def ids(
        self,
        num_examples: int,
        data_size: Int[Array, ""] | None,
        start: Int[Array, ""],
        num_steps: int,
        *,
        key: PRNGKeyArray,
    ) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of some steps."""
        if self.batch_size is None:
            _refuse_data_size(data_size)
            return None
        size, bound = self.batch_size, num_examples if data_size is None else data_size
        (batch_key,) = named_keys(key, "batch")
        steps = start + jnp.arange(num_steps, dtype=start.dtype)
        return jax.vmap(lambda step: jr.randint(jr.fold_in(batch_key, step), (size,), 0, bound))(steps)


class EpochBatches(AbstractBatches):
    """The data in a new random order each epoch; a batch may hold the end of one epoch and the start of the next.

    All examples are seen equally often. Data smaller than a batch are repeated within it.
    """

    batch_size: int | None = eqx.field(static=True)

    def __init__(self, batch_size: int | None):
        """Initialize with the batch size; None means that each step sees all data, once."""
        if batch_size is not None:
            check_positive("batch_size", batch_size)
        self.batch_size = batch_size

    def ids(
        self,
        num_examples: int,
        data_size: Int[Array, ""] | None,
        start: Int[Array, ""],
        num_steps: int,
        *,
        key: PRNGKeyArray,
    ) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of some steps; sorts the data once per epoch that they touch."""
        _refuse_data_size(data_size)
        if self.batch_size is None:
            return None
        (batch_key,) = named_keys(key, "batch")
        # Every `cycle` steps end with an epoch; counting from the last such step keeps small what is multiplied.
        cycle = num_examples // math.gcd(num_examples, self.batch_size)
        if (cycle + num_steps) * self.batch_size > jnp.iinfo(start.dtype).max:
            raise ValueError(
                f"`batch_size` must be small enough to number the examples of {cycle + num_steps} steps by "
                f"{start.dtype}, for {num_examples} examples; got {self.batch_size}."
            )
        first_epoch = start // cycle * (cycle * self.batch_size // num_examples)
        positions = start % cycle * self.batch_size + jnp.arange(num_steps * self.batch_size, dtype=start.dtype)
        skipped = positions[0] // num_examples
        # The worst case begins with the last example of an epoch.
        num_epochs = 1 + (num_steps * self.batch_size + num_examples - 2) // num_examples
        epochs = first_epoch + skipped + jnp.arange(num_epochs, dtype=start.dtype)
        orders = jax.vmap(lambda epoch: jr.permutation(jr.fold_in(batch_key, epoch), num_examples))(epochs)
        chosen = orders[positions // num_examples - skipped, positions % num_examples]
        return chosen.reshape(num_steps, self.batch_size)


def _refuse_data_size(data_size: Int[Array, ""] | None) -> None:
    """Raise if the number of examples is given as an array."""
    if data_size is not None:
        raise ValueError("`data_size` must be None unless examples are drawn by `UniformBatches` of a given size.")
