"""Batches from any source, prepared by threads or worker processes of Grain."""

import dataclasses
import functools as ft
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from .._checks import check_positive, require_package
from .._keys import generator_of, raw_bits, stream_of
from ..losses import Batch
from ._arrays import Source
from ._images import CorruptImageError
from ._transforms import Normalization, Transform, apply


@ft.lru_cache(maxsize=4)
def _permutation(stream: int, epoch: int, size: int) -> Int[np.ndarray, " size"]:
    """Return the order of one epoch, by sorting random words."""
    return np.argsort(raw_bits(stream, epoch, size), kind="stable")


@dataclasses.dataclass(frozen=True)
class ExampleOrder:
    """The sequence in which examples are visited, finite or endless: each epoch in its own order.

    Entry `n` depends on the stream and `n` only, so a run may stop anywhere and use any number of processes.
    """

    num_examples: int
    num_epochs: int | None
    stream: int | None

    def __post_init__(self):
        """Check the sizes."""
        check_positive("num_examples", self.num_examples)
        if self.num_epochs is not None:
            check_positive("num_epochs", self.num_epochs)

    def __len__(self) -> int:
        return sys.maxsize if self.num_epochs is None else self.num_examples * self.num_epochs

    def positions(self, start: int, stop: int) -> Int[np.ndarray, " chosen"]:
        """Return the positions of entries `start` to `stop - 1`."""
        epochs, rest = np.divmod(np.arange(start, stop), self.num_examples)
        if self.stream is None:
            return rest
        return np.array(
            [_permutation(self.stream, int(e), self.num_examples)[r] for e, r in zip(epochs, rest, strict=True)]
        )


@dataclasses.dataclass(frozen=True)
class BatchReader:
    """Reads, decodes, augments and stacks this process's part of a global batch.

    Batch `t` holds entries `t * batch_size` to `(t + 1) * batch_size - 1` of the order. Process `p` of `n` reads
    the `p`-th of `n` equal stretches of it. Entry `m` is augmented by substream `m`. The global batch is therefore the
    same for any number of processes, threads and workers.
    """

    source: Source
    order: ExampleOrder
    batch_size: int
    transforms: tuple[Transform, ...]
    normalization: Normalization | None
    stream: int
    process_index: int
    process_count: int
    skip_corrupt: bool

    def __call__(self, number: int) -> dict[str, Any]:
        """Return the stacked arrays `x`, `y`, `i` of a batch, and the positions of skipped images."""
        first = number * self.batch_size
        size = min(self.batch_size, len(self.order) - first) // self.process_count
        start = first + self.process_index * size
        skipped: list[int] = []
        positions = self.order.positions(start, start + size)
        examples = [self._read(int(p), start + offset, skipped) for offset, p in enumerate(positions)]
        if isinstance(examples[0]["x"], bytes):
            raise ValueError(
                "`transforms` must begin with one that decodes, such as `CenterCrop()`; got encoded images."
            )
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *examples)
        if self.normalization is not None:
            stacked["x"] = self.normalization(stacked["x"])
        return {**stacked, "skipped": np.array(skipped, dtype=np.int32)}

    def _read(self, position: int, entry: int, skipped: list[int]) -> dict[str, Any]:
        """Return one example, or the next one that can be decoded."""
        for _ in range(len(self.source)):
            example = self.source[position]
            try:
                x = example["x"]
                # Creating a generator takes longer than reading a small image.
                x = apply(self.transforms, x, generator_of(self.stream, entry)) if self.transforms else x
            except CorruptImageError as error:
                if not self.skip_corrupt:
                    raise CorruptImageError(f"{self.source.describe(position)!r} {error}") from None
                skipped.append(position)
                position = (position + 1) % len(self.source)
            else:
                return {"x": x, "y": example["y"], "i": example["i"]}
        raise CorruptImageError(f"{self.source.describe(position)!r} and all other images cannot be decoded.")


def _check_processes(batch_size: int, remainder: int, process_index: int, process_count: int) -> None:
    """Raise unless all processes get equal parts of every batch."""
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
    """An iterator of batches over a source: shuffled, augmented, normalized, split over processes, and restartable.

    Batch `t` depends on the arguments and `t` only, not on threads, workers, or the number of processes, each of which
    gets its stretch of the global batch. `state()` is therefore one number, which can be restored into a loader with
    other workers or processes.

    A loader is its own iterator, and `fit` accepts it as data. Use it in a `with` statement, which stops its worker
    processes. Programs with workers need `if __name__ == "__main__":`, since workers import the main module.
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
            source: an `ArrayDataset`, `ImageFolder`, `RecordSource`, or any other `Source`.
            batch_size: examples per global batch, over all processes.
            transforms: applied to each image in order, such as `CIFAR10_TRAIN`, or `RandomResizedCrop()` and
                `RandomFlip()`.
            normalization: converts pixels to floats; None keeps bytes.
            shuffle: whether each epoch has its own random order. A batch may span two epochs.
            num_epochs: how often each example is visited; None for no limit.
            drop_remainder: whether an incomplete last batch is dropped.
            num_threads: Grain threads that prepare batches in advance, in this process or in each worker.
            num_workers: Grain worker processes that prepare batches in advance.
            buffer_size: prepared batches per thread or worker.
            process_index: which part of each global batch this process reads, `jax.process_index()`.
            process_count: the number of parts, `jax.process_count()`.
            skip_corrupt: whether an image that cannot be decoded is replaced by the next good one and recorded in
                `skipped`, instead of raising an error.
            key: random key of order and augmentation; may be None without `shuffle` and random transforms.
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
        """Return an iterator over the remaining batches."""
        if self._threads == 0 and self._workers == 0:
            return map(self._reader, range(self._next_batch, self.num_batches))
        grain = require_package("grain")
        batches = grain.MapDataset.range(self._next_batch, self.num_batches).map(self._reader)
        ahead = self._threads * self._buffer
        batches = batches.to_iter_dataset(grain.ReadOptions(num_threads=self._threads, prefetch_buffer_size=ahead))
        if self._workers:
            flags = require_package("absl.flags").FLAGS
            # Grain 0.2.18 reads an absl flag when it starts workers, which fails if flags were never parsed.
            if not flags.is_parsed():
                flags.mark_as_parsed()
            options = grain.MultiprocessingOptions(num_workers=self._workers, per_worker_buffer_size=self._buffer)
            batches = batches.mp_prefetch(options)
        return iter(batches)

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Batch:
        arrays = self.next_arrays()
        return Batch(arrays["x"], arrays["y"], arrays["i"])

    def next_arrays(self) -> dict[str, Any]:
        """Return the next batch as a dictionary of numpy arrays: this process's part of the global batch."""
        if self._iterator is None:
            self._iterator = self._start()
        try:
            arrays = next(self._iterator)
        except BaseException:
            # At the end or after an error, the iterator is finished.
            self.close()
            raise
        if self._workers:
            # Grain returns views of shared memory, which must not outlive the iterator.
            arrays = jax.tree.map(np.array, arrays)
        self._next_batch += 1
        self.skipped.update(arrays.pop("skipped").tolist())
        return arrays

    @property
    def skipped_names(self) -> list[str]:
        """The files of the images skipped so far."""
        return [self._reader.source.describe(position) for position in sorted(self.skipped)]

    def state(self) -> dict[str, int]:
        """Return the position as JSON: the number of the next batch, and the identity of the sequence."""
        return {"next_batch": self._next_batch, **self._identity()}

    def _identity(self) -> dict[str, int]:
        """Return what two loaders must share for a batch number to mean the same batch."""
        order = self._reader.order
        shuffled = -1 if order.stream is None else order.stream % sys.maxsize
        return {"num_examples": order.num_examples, "batch_size": self._reader.batch_size, "order": shuffled}

    def restore(self, state: Mapping[str, int]) -> None:
        """Continue from the position of another loader of the same data, batch size and key."""
        expected = {name: state.get(name) for name in self._identity()}
        if expected != self._identity() or not 0 <= state.get("next_batch", -1) <= self.num_batches:
            raise ValueError(f"`state` must be that of a loader with {self._identity()}; got {dict(state)}.")
        self.close()
        self._next_batch = state["next_batch"]

    def close(self) -> None:
        """Stop threads and worker processes; the next batch starts new ones."""
        iterator, self._iterator = self._iterator, None
        if hasattr(iterator, "close"):
            iterator.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
