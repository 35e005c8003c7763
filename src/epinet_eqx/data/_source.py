"""What a pipeline reads from, and in which order."""

import dataclasses
import functools as ft
import sys
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from .._checks import check_positive
from ._random import raw_bits


@runtime_checkable
class Source(Protocol):
    """Examples by position: dictionaries of `x`, the label `y`, and the stable number `i`."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> dict[str, Any]: ...

    def describe(self, position: int) -> str:
        """Return what an error message calls one example: its file, if it has one."""
        ...


@dataclasses.dataclass(frozen=True)
class ExampleOrder:
    """The endless or finite sequence in which examples are visited: epoch after epoch, each in an order of its own.

    Entry `n` depends on the stream and `n` only, so a run may be cut anywhere and be shared by any number of processes.
    """

    num_examples: int
    num_epochs: int | None
    stream: int | None

    def __post_init__(self):
        """Raise unless there is something to visit."""
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


@ft.lru_cache(maxsize=4)
def _permutation(stream: int, epoch: int, size: int) -> Int[np.ndarray, " size"]:
    """Return the order of one epoch, by sorting random words."""
    return np.argsort(raw_bits(stream, epoch, size), kind="stable")
