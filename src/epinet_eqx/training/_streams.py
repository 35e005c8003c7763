"""Training data as batches: checks, and streams whose position can be saved."""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._checks import check_finite, num_examples, raise_wrong_input
from .._enn import num_outputs
from .._keys import named_keys
from ..data import Loader
from ..losses import AbstractLoss, Batch
from ._batches import AbstractBatches, Steps
from ._objectives import network_as_enn


@runtime_checkable
class DataIterator(Protocol):
    """A stream of this process's parts of the global batches, such as an iterator of Grain."""

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
        """Return the position of the loader."""
        return self._loader.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to the position of a loader."""
        self._loader.restore(state)


class MemoryIterator:
    """Data in memory as a stream of batches, drawn by the rules that `fit` uses.

    The global batch of a step does not depend on the number of processes, of which each gets every n-th example.
    """

    def __init__(self, data: Batch, batches: AbstractBatches, *, key: PRNGKeyArray):
        """Initialize at the first batch.

        Args:
            data: all examples.
            batches: how the examples of a step, of all processes together, are drawn; such as `EpochBatches(128)`.
            key: random key of the order.
        """
        self._data = jax.tree.map(np.asarray, {"x": data.x, "y": data.y, "i": data.i})
        self._num_examples = num_examples("data", data)
        self._batches = batches
        self._key = key
        self._step = 0
        self._batch_size = self._num_examples if batches.batch_size is None else batches.batch_size
        if self._batch_size % jax.process_count() != 0:
            raise ValueError(
                f"`batch_size` must be a multiple of the number of processes, {jax.process_count()}; "
                f"got {self._batch_size}."
            )
        # Positions are drawn an epoch at a time: an order of the data is sorted as a whole.
        self._block = max(1, self._num_examples // self._batch_size)
        self._drawn: tuple[int, np.ndarray] | None = None

    def _positions(self) -> np.ndarray:
        """Return the positions of the examples of the next global batch."""
        number = self._step // self._block
        if self._drawn is None or self._drawn[0] != number:
            start = jnp.asarray(number * self._block, dtype=jnp.int32)
            ids = _draw_positions(self._batches, self._num_examples, start, self._block, jr.clone(self._key))
            everything = np.broadcast_to(np.arange(self._num_examples), (self._block, self._num_examples))
            self._drawn = number, everything if ids is None else np.asarray(ids)
        return self._drawn[1][self._step % self._block]

    def __iter__(self) -> "MemoryIterator":
        """Return itself."""
        return self

    def __next__(self) -> dict[str, Any]:
        """Return this process's part of the next batch."""
        ids = self._positions()[jax.process_index() :: jax.process_count()]
        self._step += 1
        return jax.tree.map(lambda leaf: leaf[ids], self._data)

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a position to mean the same batch."""
        examples = 0
        for leaf in jax.tree.leaves(self._data):
            examples = zlib.crc32(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes(), examples)
        (batch_key,) = named_keys(self._key, "batch")
        return {
            "batch_size": self._batch_size,
            "sampling": type(self._batches).__name__,
            "order": f"{zlib.crc32(np.asarray(jr.key_data(batch_key)).tobytes()):08x}",
            "examples": f"{examples:08x}",
        }

    def get_state(self) -> dict[str, Any]:
        """Return the number of batches taken."""
        return {"step": self._step}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to the batch after that number."""
        self._step = int(state["step"])


@eqx.filter_jit
def _draw_positions(
    batches: AbstractBatches, num_examples: int, start: Array, num_steps: int, key: PRNGKeyArray
) -> Array | None:
    """Return the positions of the examples of some steps."""
    return batches.ids(Steps(num_examples, None, start, num_steps), key=key)


def as_batch(name: str, data: Any) -> Batch:
    """Return data in memory, given as a `Batch` or as a pair `(x, y)`, as a `Batch`."""
    if isinstance(data, Batch):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        for part, values in zip("xy", data, strict=True):
            if values is None:
                raise ValueError(f"`{name}` must be a pair `(x, y)` of arrays; got None as `{part}`.")
        return Batch.of(*data)
    raise ValueError(f"`{name}` must be a `Batch` or a pair `(x, y)`; got {type(data).__name__}.")


def padded(data: Batch, capacity: int | None) -> tuple[Batch, Int[Array, ""] | None]:
    """Return data with copies of the first example up to `capacity`, and the number of original examples."""
    if capacity is None:
        return data, None
    length = num_examples("data", data)
    if capacity < length:
        raise ValueError(f"`capacity` must be at least the number of examples, {length}; got {capacity}.")

    def pad(leaf: Array) -> np.ndarray:
        values = np.asarray(leaf)
        return np.concatenate([values, np.repeat(values[:1], capacity - length, axis=0)])

    whole = Batch(jax.tree.map(pad, data.x), pad(data.y), pad(data.i))
    return whole, jnp.asarray(np.int32(length))


def as_stream(data: Any) -> Iterator[Any] | DataIterator | None:
    """Return the stream of an iterable of batches, or None for data in memory."""
    if isinstance(data, Loader):
        return LoaderIterator(data)
    in_memory = isinstance(data, Batch) or (isinstance(data, tuple) and not all(isinstance(d, Batch) for d in data))
    if in_memory or isinstance(data, np.ndarray | Array | dict | str):
        return None
    if isinstance(data, DataIterator):
        return data
    return iter(data) if isinstance(data, Iterable) else None


def first(tree: PyTree) -> PyTree:
    """Return the first entry of every array of `tree`, except random keys, which would count as used."""

    def take(leaf: Any) -> Any:
        is_number = eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf[0] if is_number else leaf

    return jax.tree.map(take, tree)


def count_outputs(model: PyTree, x: PyTree[Array], *, stacked: bool) -> int:
    """Return the number of outputs of a model, or of each of a stack, from shapes only, without compiling."""

    def outputs(model: PyTree, x: PyTree[Array]) -> Array:
        return jnp.zeros(num_outputs(network_as_enn(first(model) if stacked else model), first(x)))

    try:
        return eqx.filter_eval_shape(outputs, model, x).shape[0]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise_wrong_input("x", "model", x, error)


def check_data(name: str, data: Batch, model: PyTree, loss: AbstractLoss) -> None:
    """Raise unless `model` can be trained on all of these examples with this loss."""
    check_finite(f"x of {name}", data.x)
    loss.check_targets(data.y, count_outputs(model, data.x, stacked=False))
