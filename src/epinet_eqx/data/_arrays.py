"""Data sets in memory: plain arrays with stable ids."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int, Int32, Shaped

from ..losses import Batch
from ._normalize import Normalization


def as_batch(arrays: Mapping[str, Any]) -> Batch:
    """Return a dictionary of arrays `x`, `y` and `i`, as pipelines make them, as a `Batch` on the default device."""
    missing = [name for name in ("x", "y", "i") if name not in arrays]
    if missing:
        raise ValueError(f"`arrays` must have the entries x, y and i; got {', '.join(arrays) or 'none'}.")
    return Batch(arrays["x"], arrays["y"], arrays["i"])


def check_classes(where: str, y: Int[np.ndarray, " batch"], num_classes: int) -> Int32[np.ndarray, " batch"]:
    """Return the labels of `where`, a file or an argument, which must be classes and at least one."""
    if y.size == 0:
        raise ValueError(f"{where} must hold at least one example; got none.")
    if y.min() < 0 or y.max() >= num_classes:
        at = int(np.argmax((y < 0) | (y >= num_classes)))
        raise ValueError(f"{where} must hold labels from 0 to {num_classes - 1}; got {y[at]} at position {at}.")
    return y.astype(np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayDataset:
    """Examples in memory, each with the number `i` by which a bootstrap knows it.

    Images have channels first. Integers are pixels from 0 to 255, which a `Normalization` turns into numbers;
    floating-point images are used as they are.
    """

    x: Shaped[np.ndarray, "batch ..."]
    y: Int32[np.ndarray, " batch"]
    i: Int32[np.ndarray, " batch"]
    num_classes: int
    name: str = "arrays"

    @classmethod
    def of(cls, x: Any, y: Any, *, num_classes: int, name: str = "arrays") -> "ArrayDataset":
        """Return a data set of inputs and integer labels, numbered from zero.

        Args:
            x: inputs, an array with a leading batch axis.
            y: labels from 0 to `num_classes - 1`.
            num_classes: number of classes.
            name: what error messages call it, such as the file that it came from.
        """
        x, y = np.asarray(x), np.asarray(y)
        if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
            raise ValueError(f"`y` must be a vector of integers; got {y.dtype} of shape {y.shape}.")
        if x.ndim < 1 or len(x) != len(y):
            raise ValueError(f"`x` must have one entry per label, {len(y)}; got shape {x.shape}.")
        labels = check_classes(f"`y` of {name}", y, num_classes)
        return cls(x, labels, np.arange(len(y), dtype=np.int32), num_classes, name)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example, as every source of the pipelines does."""
        return {"x": self.x[position], "y": self.y[position], "i": self.i[position]}

    def describe(self, position: int) -> str:
        """Return what an error message calls one example."""
        return f"example {position} of {self.name}"

    def take(self, positions: slice | Int[np.ndarray, " chosen"]) -> "ArrayDataset":
        """Return some of the examples, which keep their numbers."""
        part = dataclasses.replace(self, x=self.x[positions], y=self.y[positions], i=self.i[positions])
        if len(part) == 0:
            raise ValueError(f"`positions` must choose at least one of the {len(self)} examples; got {positions!r}.")
        return part

    def as_batch(self, normalization: Normalization | None = None) -> Batch:
        """Return all examples as a `Batch`, for `fit` and for evaluation."""
        return Batch(self.x if normalization is None else normalization(self.x), self.y, self.i)
