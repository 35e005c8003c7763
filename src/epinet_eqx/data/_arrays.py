"""Sources of examples, labels that are checked, and data sets in memory."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, Int32, Shaped

from .._checks import refuse_mask
from ..losses import Batch
from ._transforms import Normalization

_INT32 = np.iinfo(np.int32)


@runtime_checkable
class Source(Protocol):
    """Examples by position: dictionaries of the input `x`, the label `y` and the stable number `i`."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> dict[str, Any]: ...

    def describe(self, position: int) -> str:
        """Return a name for one example in error messages: its file, if it has one."""
        ...


def check_classes(where: str, y: Any, num_classes: int) -> Int32[np.ndarray, " batch"]:
    """Return the labels of `where`, a file or an argument: at least one integer, each from 0 to `num_classes - 1`."""
    y = np.asarray(y)
    if y.size == 0:
        raise ValueError(f"{where} must hold at least one example; got none.")
    # Before the range: a float or a wide integer that was converted first would pass for a class.
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"{where} must hold a vector of integers as labels; got {y.dtype} of shape {y.shape}.")
    if y.min() < 0 or y.max() >= num_classes:
        at = int(np.argmax((y < 0) | (y >= num_classes)))
        raise ValueError(f"{where} must hold labels from 0 to {num_classes - 1}; got {y[at]} at position {at}.")
    return y.astype(np.int32)


def check_numbers(where: str, i: Any, count: int) -> Int32[np.ndarray, " batch"]:
    """Return the numbers of the examples of `where`: `count` integers of 32 bits."""
    i = np.asarray(i)
    if i.shape != (count,) or not np.issubdtype(i.dtype, np.integer):
        raise ValueError(f"{where} must hold {count} integers as numbers; got {i.dtype} of shape {i.shape}.")
    if count and (i.min() < _INT32.min or i.max() > _INT32.max):
        raise ValueError(f"{where} must hold numbers that fit into 32 bits; got values from {i.min()} to {i.max()}.")
    return i.astype(np.int32)


def check_stretch(start: Any, stop: Any, count: int) -> int:
    """Return the end of a range of examples, at most `count` and by default that; the range must not be empty."""
    for name, value in (("start", start), ("stop", count if stop is None else stop)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ValueError(f"`{name}` must be an integer; got {value!r}.")
    end = count if stop is None else min(int(stop), count)
    if not 0 <= start < end:
        raise ValueError(f"`start` must be from 0 to below {end}, where examples end; got {start}.")
    return end


class ArrayDataset:
    """Classification examples in memory, each with the number `i` that identifies it to the bootstrap.

    Images have channels first. Integer images are pixels from 0 to 255, which a `Normalization` converts;
    floating-point images are used unchanged.
    """

    x: Shaped[np.ndarray, "batch ..."]
    y: Int32[np.ndarray, " batch"]
    i: Int32[np.ndarray, " batch"]
    num_classes: int
    name: str

    def __init__(self, x: Any, y: Any, i: Any = None, num_classes: int | None = None, name: str = "arrays"):
        """Initialize from arrays.

        Args:
            x: inputs, an array with a leading batch axis.
            y: integer labels from 0.
            i: the numbers of the examples; by default their positions.
            num_classes: number of classes; by default the largest label plus one.
            name: name in error messages, such as the file that the arrays came from.
        """
        for argument, values in (("x", x), ("y", y), ("i", i)):
            refuse_mask(argument, values)
        x, y = np.asarray(x), np.asarray(y)
        if num_classes is None:
            num_classes = int(y.max()) + 1 if y.size and np.issubdtype(y.dtype, np.integer) else 1
        labels = check_classes(f"`y` of {name}", y, num_classes)
        if x.ndim < 1 or len(x) != len(labels):
            raise ValueError(f"`x` must have one entry per label, {len(labels)}; got shape {x.shape}.")
        self.x, self.y = x, labels
        self.i = check_numbers(f"`i` of {name}", np.arange(len(labels)) if i is None else i, len(labels))
        self.num_classes = num_classes
        self.name = name

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example."""
        return {"x": self.x[position], "y": self.y[position], "i": self.i[position]}

    def describe(self, position: int) -> str:
        """Return a name for one example in error messages."""
        return f"example {position} of {self.name}"

    def take(self, positions: slice | Int[np.ndarray, " chosen"]) -> "ArrayDataset":
        """Return some of the examples, with their numbers."""
        y = self.y[positions]
        if len(y) == 0:
            raise ValueError(f"`positions` must choose at least one of the {len(self)} examples; got {positions!r}.")
        return ArrayDataset(self.x[positions], y, self.i[positions], self.num_classes, self.name)

    def as_batch(self, normalization: Normalization | None = None) -> Batch:
        """Return all examples as a `Batch`, for `fit` and for evaluation."""
        return Batch(self.x if normalization is None else normalization(self.x), self.y, self.i)
