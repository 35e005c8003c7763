"""Streams of batches whose position can be saved."""

import zlib
from typing import Any, Protocol, runtime_checkable

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import check_positive, num_examples
from .._keys import named_keys
from ..data import Loader
from ..losses import Batch


@runtime_checkable
class DataIterator(Protocol):
    """A stream of this process's parts of the global batches; Grain's iterators are such."""

    def __next__(self) -> Any:
        """Return the next part: a `Batch`, or a dictionary of NumPy arrays with the names `x`, `y` and `i`."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Return the position in the stream, as JSON values."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to a position that `get_state` has returned."""
        ...


class LoaderIterator:
    """A `Loader` as such a stream; its batches go to the devices once, straight from the host."""

    def __init__(self, loader: Loader):
        """Initialize with the loader."""
        self._loader = loader

    def __next__(self) -> dict[str, Any]:
        """Return this process's part of the next batch."""
        return self._loader.next_arrays()

    def get_state(self) -> dict[str, Any]:
        """Return where the loader is."""
        return self._loader.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to where a loader was."""
        self._loader.restore(state)


class MemoryIterator:
    """Data in memory, in a new random order each epoch; the order is that of `EpochBatches` with the same key.

    The global batch of a step does not depend on the number of processes, of which each gets every n-th example.
    """

    def __init__(self, data: Batch, batch_size: int, *, key: PRNGKeyArray):
        """Initialize at the first batch.

        Args:
            data: all examples.
            batch_size: examples per step, of all processes together.
            key: random key of the order.
        """
        check_positive("batch_size", batch_size)
        if batch_size % jax.process_count() != 0:
            raise ValueError(
                f"`batch_size` must be a multiple of the number of processes, {jax.process_count()}; got {batch_size}."
            )
        self._data = jax.tree.map(np.asarray, {"x": data.x, "y": data.y, "i": data.i})
        self._num_examples = num_examples("data", data)
        self._batch_size = batch_size
        (self._key,) = named_keys(key, "batch")
        self._orders: dict[int, np.ndarray] = {}
        self._step = 0

    def _order(self, epoch: int) -> np.ndarray:
        """Return the order of an epoch, found again as long as a batch needs it."""
        if epoch not in self._orders:
            self._orders = {old: order for old, order in self._orders.items() if old >= epoch - 1}
            self._orders[epoch] = np.asarray(jr.permutation(jr.fold_in(self._key, epoch), self._num_examples))
        return self._orders[epoch]

    def __iter__(self) -> "MemoryIterator":
        """Return itself."""
        return self

    def __next__(self) -> dict[str, Any]:
        """Return this process's part of the next batch."""
        first = self._step * self._batch_size
        positions = range(first + jax.process_index(), first + self._batch_size, jax.process_count())
        ids = np.array([self._order(n // self._num_examples)[n % self._num_examples] for n in positions])
        self._step += 1
        return jax.tree.map(lambda leaf: leaf[ids], self._data)

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same batch."""
        examples = 0
        for leaf in jax.tree.leaves(self._data):
            examples = zlib.crc32(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes(), examples)
        order = zlib.crc32(np.asarray(jr.key_data(self._key)).tobytes())
        return {"batch_size": self._batch_size, "order": f"{order:08x}", "examples": f"{examples:08x}"}

    def get_state(self) -> dict[str, Any]:
        """Return the number of batches taken."""
        return {"step": self._step}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to the batch after as many as `state` says."""
        self._step = int(state["step"])
