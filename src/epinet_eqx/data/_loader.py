"""Pipelines: batches from any source, by threads or worker processes of Grain."""

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import check_positive, require_package
from ..losses import Batch
from ._arrays import as_batch
from ._augment import Transform
from ._normalize import Normalization
from ._random import stream_of
from ._reader import BatchReader
from ._source import ExampleOrder, Source


def _check_processes(batch_size: int, remainder: int, process_index: int, process_count: int) -> None:
    """Raise unless every process gets an equal part of every batch."""
    check_positive("batch_size", batch_size)
    check_positive("process_count", process_count)
    if not 0 <= process_index < process_count:
        raise ValueError(f"`process_index` must be from 0 to {process_count - 1}; got {process_index}.")
    if batch_size % process_count:
        raise ValueError(f"`batch_size` must be divisible by the {process_count} processes; got {batch_size}.")
    if remainder % process_count:
        raise ValueError(
            f"`drop_remainder` must be true, since {process_count} processes cannot share a last batch of {remainder} "
            "examples; got False."
        )


class Loader:
    """An iterator of batches over a source: shuffled, augmented, normalized, shared by processes, and restartable.

    Batch `t` is a function of the arguments and `t` only: not of threads, workers, or the number of processes, of which
    each gets its stretch of the global batch. `state()` is therefore one number, and may be restored into a loader with
    other workers or processes.

    A loader is its own iterator, and `fit` takes it as data. Use it in a `with` statement, which ends its worker
    processes. Programs with workers need the usual `if __name__ == "__main__":`, since workers import the main module.
    """

    def __init__(
        self,
        source: Source,
        *,
        batch_size: int,
        transforms: Sequence[Transform] = (),
        normalization: Normalization | None = None,
        shuffle: bool = True,
        num_epochs: int | None = None,
        drop_remainder: bool = True,
        num_threads: int = 0,
        num_workers: int = 0,
        buffer_size: int = 2,
        process_index: int = 0,
        process_count: int = 1,
        skip_corrupt: bool = False,
        key: PRNGKeyArray | None,
    ):
        """Initialize; nothing is read before the first batch.

        Args:
            source: an `ArrayDataset`, `ImageFolder`, `RecordSource`, or anything like them.
            batch_size: examples of a global batch, over all processes.
            transforms: applied to each image in order, such as `CIFAR10_TRAIN`, or `RandomResizedCrop()` and
                `RandomFlip()`.
            normalization: turns the pixels into numbers; None leaves bytes as they are.
            shuffle: whether each epoch has a random order of its own. Batches may hold the end of one epoch and the
                start of the next.
            num_epochs: how often each example is visited; None for ever.
            drop_remainder: whether a last batch that is not full is left out.
            num_threads: threads of Grain that make batches ahead, in this process or in each worker.
            num_workers: worker processes of Grain that make batches ahead.
            buffer_size: batches that each thread or worker keeps ready.
            process_index: which part of each global batch this process reads, `jax.process_index()`.
            process_count: how many parts there are, `jax.process_count()`.
            skip_corrupt: whether an image that cannot be decoded is replaced by the next one that can, and counted in
                `skipped`, instead of ending the iteration.
            key: random key of the order and the augmentation; may be None without `shuffle`, for transforms that draw
                nothing.
        """
        for name, value in (("num_threads", num_threads), ("num_workers", num_workers)):
            if value < 0:
                raise ValueError(f"`{name}` must not be negative; got {value}.")
        check_positive("buffer_size", buffer_size)
        if len(source) == 0:
            raise ValueError("`source` must hold at least one example; got none.")
        if shuffle and key is None:
            raise ValueError("`key` must be given to shuffle; got None.")
        order = ExampleOrder(len(source), num_epochs, stream_of(key, "order") if shuffle and key is not None else None)
        remainder = 0 if num_epochs is None or drop_remainder else len(order) % batch_size
        _check_processes(batch_size, remainder, process_index, process_count)
        self._reader = BatchReader(
            source,
            order,
            batch_size,
            tuple(transforms),
            normalization,
            0 if key is None else stream_of(key, "augmentation"),
            process_index,
            process_count,
            skip_corrupt,
        )
        # Grain counts batches by machine integers.
        self.num_batches = len(order) // batch_size + (remainder > 0)
        if self.num_batches == 0:
            raise ValueError(f"`batch_size` must be at most the number of examples, {len(order)}; got {batch_size}.")
        self.skipped: set[int] = set()
        self._threads, self._workers, self._buffer = num_threads, num_workers, buffer_size
        self._next_batch = 0
        self._iterator: Any = None

    def _start(self) -> Any:
        """Return an iterator over the batches that are left."""
        if self._threads == 0 and self._workers == 0:
            return map(self._reader, range(self._next_batch, self.num_batches))
        grain = require_package("grain")
        batches = grain.MapDataset.range(self._next_batch, self.num_batches).map(self._reader)
        ahead = self._threads * self._buffer
        batches = batches.to_iter_dataset(grain.ReadOptions(num_threads=self._threads, prefetch_buffer_size=ahead))
        if self._workers:
            flags = require_package("absl.flags").FLAGS
            # Grain 0.2.18 reads a flag of absl when it starts workers, which fails unless some program parsed them.
            if not flags.is_parsed():
                flags.mark_as_parsed()
            options = grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=self._buffer)
            batches = batches.mp_prefetch(options)
        return iter(batches)

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Batch:
        return as_batch(self.next_arrays())

    def next_arrays(self) -> dict[str, Any]:
        """Return the next batch as a dictionary of numpy arrays: this process's part of a global array."""
        if self._iterator is None:
            self._iterator = self._start()
        try:
            arrays = next(self._iterator)
        except BaseException:
            # At the end, and after an error: there is nothing to go on with.
            self.close()
            raise
        if self._workers:
            # Grain hands out shared memory, whose arrays must not outlive the iterator.
            arrays = jax.tree.map(np.array, arrays)
        self._next_batch += 1
        self.skipped.update(arrays.pop("skipped").tolist())
        return arrays

    @property
    def skipped_names(self) -> list[str]:
        """The files of the images that were skipped so far."""
        return [self._reader.source.describe(position) for position in sorted(self.skipped)]

    def state(self) -> dict[str, int]:
        """Return where the loader is, as JSON: the number of the next batch, and what it is a number of."""
        return {"next_batch": self._next_batch, **self._identity()}

    def _identity(self) -> dict[str, int]:
        """Return what must be equal for a batch number to mean the same batch."""
        order = self._reader.order
        shuffled = -1 if order.stream is None else order.stream % sys.maxsize
        return {"num_examples": order.num_examples, "batch_size": self._reader.batch_size, "order": shuffled}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go on from where another loader of the same data, batch size and key was."""
        expected = {name: state.get(name) for name in self._identity()}
        if expected != self._identity() or not 0 <= state.get("next_batch", -1) <= self.num_batches:
            raise ValueError(f"`state` must be that of a loader with {self._identity()}; got {dict(state)}.")
        self.close()
        self._next_batch = state["next_batch"]

    def close(self) -> None:
        """End threads and worker processes; the next batch starts new ones."""
        iterator, self._iterator = self._iterator, None
        if hasattr(iterator, "close"):
            iterator.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
