"""Epochs without replacement over data whose size is an array (Appendix F.3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from .._checks import check_positive
from .._keys import named_keys
from ..training import AbstractBatches

# Pairs of rounds of the Feistel network; two are enough for orders that look random.
_ROUNDS = 2


def _mix(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """Return a hash of 32 bits, one to one: shifts and products with odd numbers."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * np.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def permute(
    places: UInt32[Array, " n"],
    epochs: UInt32[Array, " n"],
    size: UInt32[Array, ""],
    salts: UInt32[Array, "rounds 2"],
) -> UInt32[Array, " n"]:
    """Return where each place comes to lie in the random order of its epoch, a permutation of `0..size - 1`.

    A place is written as a pair of digits `(left, right)` to bases of about the root of `size`, and each digit in turn
    is shifted by a hash of the other: a Feistel network, one to one on all pairs. Pairs beyond `size` are few, and are
    sent on until they fall below it, which keeps the map one to one. Nothing is sorted and nothing is stored.
    """
    base = jnp.maximum(jnp.ceil(jnp.sqrt(size.astype(jnp.float32))).astype(jnp.uint32), np.uint32(1))
    other = (size + base - np.uint32(1)) // base

    def once(places: UInt32[Array, " n"]) -> UInt32[Array, " n"]:
        left, right = places % base, places // base
        for first, second in salts:
            left = (left + _mix(right + _mix(epochs + first)) % base) % base
            right = (right + _mix(left + _mix(epochs + second)) % other) % other
        return right * base + left

    # A product, as XLA compiles a reduction of many numbers to a page of code on a CPU.
    beyond = lambda places: (places >= size).astype(float) @ jnp.ones(places.shape) > 0  # noqa: E731
    again = lambda places: jnp.where(places >= size, once(places), places)  # noqa: E731
    return jax.lax.while_loop(beyond, again, once(places))


class ShuffledBatches(AbstractBatches):
    """The data in a new random order each epoch, as `EpochBatches`, where the size of the data may be traced.

    Problems that differ in their number of examples then share one compiled program. Data whose size divides the batch
    size are in every batch equally often, so that each step sees all of them.
    """

    batch_size: int = eqx.field(static=True)

    def __init__(self, batch_size: int | None):
        """Initialize with the batch size."""
        if batch_size is None:
            raise ValueError("`batch_size` must be given for shuffled batches; got None.")
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
        size = jnp.asarray(num_examples if data_size is None else data_size).astype(jnp.uint32)
        (batch_key,) = named_keys(key, "batch")
        salts = jr.bits(batch_key, (_ROUNDS * 2,), jnp.uint32).reshape(_ROUNDS, 2)
        count = num_steps * self.batch_size
        positions = start.astype(jnp.uint32) * np.uint32(self.batch_size) + jnp.arange(count, dtype=jnp.uint32)
        chosen = permute(positions % size, positions // size, size, salts)
        return chosen.astype(jnp.int32).reshape(num_steps, self.batch_size)
