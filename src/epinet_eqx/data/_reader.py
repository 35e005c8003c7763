"""One batch of a pipeline, as a function of its number."""

import dataclasses
from typing import Any

import jax
import numpy as np

from ._augment import Transform, apply
from ._jpeg import CorruptImageError
from ._normalize import Normalization
from ._random import generator_of
from ._source import ExampleOrder, Source


@dataclasses.dataclass(frozen=True)
class BatchReader:
    """Reads, decodes, augments and stacks this process's part of a global batch.

    Batch `t` is made of entries `t * batch_size` and on of the order; process `p` of `n` reads the `p`-th of `n` equal
    stretches of it. Entry `m` is augmented by substream `m`. So the global batch is the same, in the same order, for
    every number of processes, threads and workers.
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
        """Return the stacked arrays `x`, `y`, `i` of a batch, and the positions of the images that were skipped."""
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
                # A generator costs more than a small image, so one is made only where it may be used.
                x = apply(self.transforms, x, generator_of(self.stream, entry)) if self.transforms else x
            except CorruptImageError as error:
                if not self.skip_corrupt:
                    raise CorruptImageError(f"{self.source.describe(position)!r} {error}") from None
                skipped.append(position)
                position = (position + 1) % len(self.source)
            else:
                return {"x": x, "y": example["y"], "i": example["i"]}
        raise CorruptImageError(f"{self.source.describe(position)!r} and all other images cannot be decoded.")
