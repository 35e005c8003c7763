"""How the examples of a step are drawn (Algorithm 1, line 2)."""

import abc
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from .._checks import check_positive
from .._keys import named_keys
from .._xla import any_by_product

# Pairs of rounds of the Feistel network; two are enough for orders that look random.
_ROUNDS = 2


class Steps(NamedTuple):
    """Steps to draw examples for, and the data to draw them from.

    Attributes:
        num_examples: length of the data.
        data_size: number of examples to draw from, if fewer than that.
        start: the first step.
        num_steps: number of steps.
    """

    num_examples: int
    data_size: Int[Array, ""] | None
    start: Int[Array, ""]
    num_steps: int


class AbstractBatches(eqx.Module):
    """A rule that draws the examples of each step, as a function of the key and the step only."""

    batch_size: int | None = eqx.field(static=True)

    def __init__(self, batch_size: int | None):
        """Initialize with the batch size; None means that each step sees all data, once."""
        if batch_size is not None:
            check_positive("batch_size", batch_size)
        self.batch_size = batch_size

    @abc.abstractmethod
    def ids(self, steps: Steps, *, key: PRNGKeyArray) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of each step, or None for all data; `key` is that of the training."""


class UniformBatches(AbstractBatches):
    """Each example of a batch is drawn uniformly from the data, with replacement, as in Algorithm 1."""

    def ids(self, steps: Steps, *, key: PRNGKeyArray) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of some steps."""
        if self.batch_size is None:
            _refuse_data_size(steps.data_size)
            return None
        size, bound = self.batch_size, steps.num_examples if steps.data_size is None else steps.data_size
        (batch_key,) = named_keys(key, "batch")
        numbers = steps.start + jnp.arange(steps.num_steps, dtype=steps.start.dtype)
        return jax.vmap(lambda step: jr.randint(jr.fold_in(batch_key, step), (size,), 0, bound))(numbers)


class EpochBatches(AbstractBatches):
    """The data in a new random order each epoch; a batch may hold the end of one epoch and the start of the next.

    All examples are seen equally often. Data smaller than a batch are repeated within it.
    """

    def ids(self, steps: Steps, *, key: PRNGKeyArray) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of some steps; sorts the data once per epoch that they touch."""
        num_examples, data_size, start, num_steps = steps
        _refuse_data_size(data_size)
        if self.batch_size is None:
            return None
        (batch_key,) = named_keys(key, "batch")
        # Every `cycle` steps end with an epoch; counting from the last such step keeps the products small.
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


class ShuffledBatches(AbstractBatches):
    """Epochs as in `EpochBatches`, by a permutation that is computed instead of sorted: `data_size` may be traced.

    Problems with different numbers of examples then share one compiled program. If the number of examples divides the
    batch size, each example is in every batch equally often.
    """

    def __check_init__(self):
        """Raise without a batch size: the number of examples may not be known before the program runs."""
        if self.batch_size is None:
            raise ValueError("`batch_size` must be given for shuffled batches; got None.")

    def ids(self, steps: Steps, *, key: PRNGKeyArray) -> Int[Array, "steps batch"] | None:
        """Return the positions of the examples of some steps."""
        num_examples, data_size, start, num_steps = steps
        size = jnp.asarray(num_examples if data_size is None else data_size).astype(jnp.uint32)
        (batch_key,) = named_keys(key, "batch")
        salts = jr.bits(batch_key, (_ROUNDS * 2,), jnp.uint32).reshape(_ROUNDS, 2)
        batch_size = self.batch_size
        assert batch_size is not None
        positions = start.astype(jnp.uint32) * np.uint32(batch_size)
        positions = positions + jnp.arange(num_steps * batch_size, dtype=jnp.uint32)
        chosen = permute(positions % size, positions // size, size, salts)
        return chosen.astype(jnp.int32).reshape(num_steps, batch_size)


def _refuse_data_size(data_size: Int[Array, ""] | None) -> None:
    """Raise if the number of examples is given as an array."""
    if data_size is not None:
        raise ValueError("`data_size` must be None unless examples are drawn by `UniformBatches` of a given size.")


def _mix(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """Return a one-to-one hash of 32 bits: shifts and products with odd numbers."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def permute(
    places: UInt32[Array, " n"], epochs: UInt32[Array, " n"], size: UInt32[Array, ""], salts: UInt32[Array, "rounds 2"]
) -> UInt32[Array, " n"]:
    """Return the new position of each place in the random order of its epoch, a permutation of `0..size - 1`.

    A place is written as a pair of digits `(left, right)` in bases of about the root of `size`, and each digit in turn
    is shifted by a hash of the other: a Feistel network, one to one on all pairs. The few pairs beyond `size` are
    mapped again until they fall below it, which keeps the map one to one. Nothing is sorted and nothing is stored.
    """
    base = jnp.maximum(jnp.ceil(jnp.sqrt(size.astype(jnp.float32))).astype(jnp.uint32), np.uint32(1))
    other = (size + base - np.uint32(1)) // base

    def once(places: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
        left, right = places % base, places // base
        for first, second in salts:
            left = (left + _mix(right + _mix(epochs + first)) % base) % base
            right = (right + _mix(left + _mix(epochs + second)) % other) % other
        return right * base + left

    beyond = lambda places: any_by_product(places >= size)  # noqa: E731
    again = lambda places: jnp.where(places >= size, once(places), places)  # noqa: E731
    return jax.lax.while_loop(beyond, again, once(places))
