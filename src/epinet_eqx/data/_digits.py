"""Scikit-learn's digits, and pairs of them: the default data sets, which need no download."""

import functools as ft
import gzip
import importlib.util
import pathlib
from typing import Literal

import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import check_positive
from .._files import require_file
from ._arrays import ArrayDataset
from ._random import raw_bits, stream_of

_NUM_DIGITS = 1797
# The file goes from writer to writer, so its end was written by people whom the beginning does not know.
_NUM_TRAIN = 1437

Split = Literal["train", "test"]


@ft.cache
def _table() -> np.ndarray:
    """Return the digits as rows of 64 pixels from 0 to 16 and a label, from scikit-learn's wheel.

    The package is found but not imported, which would take a hundred times as long.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ImportError("`sklearn` is needed for the digits; install it with `pip install 'epinet_eqx[data]'`.")
    path = require_file(pathlib.Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz")
    values = np.array(gzip.decompress(path.read_bytes()).replace(b"\n", b",").split(b",")[: _NUM_DIGITS * 65], float)
    if values.size != _NUM_DIGITS * 65:
        raise ValueError(f"{str(path)!r} must hold {_NUM_DIGITS} rows of 65 numbers; got {values.size} numbers.")
    return values.reshape(_NUM_DIGITS, 65)


def _positions(split: Split) -> np.ndarray:
    """Return which rows of the file belong to a split."""
    if split not in ("train", "test"):
        raise ValueError(f'`split` must be "train" or "test"; got {split!r}.')
    return np.arange(_NUM_TRAIN) if split == "train" else np.arange(_NUM_TRAIN, _NUM_DIGITS)


def digits(split: Split) -> ArrayDataset:
    """Return scikit-learn's digits: 1797 images of 8 x 8 pixels between 0 and 1, of 10 classes.

    The split is that of the file, the first four fifths and the rest. An example's number is its row.
    """
    positions, table = _positions(split), _table()
    x = (table[positions, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = table[positions, 64].astype(np.int32)
    return ArrayDataset(x, y, positions.astype(np.int32), 10, f"digits/{split}")


def digit_pairs(split: Split, num_pairs: int = 10_000, *, key: PRNGKeyArray) -> ArrayDataset:
    """Return pairs of digits side by side: images of 8 x 16 pixels between 0 and 1, of 100 classes.

    Both digits of a pair come from the same split, so no digit of a test pair was seen in training. More pairs of the
    same key begin with the fewer. The label is the number that the pair reads as; an example's number says which two
    digits it is made of, so that the same pair has the same number wherever it is drawn.

    Args:
        split: which digits to draw from.
        num_pairs: how many pairs to draw, independently and with replacement.
        key: random key; the splits use streams of their own.
    """
    check_positive("num_pairs", num_pairs)
    single = digits(split)
    bits = raw_bits(stream_of(key, f"digit pairs, {split}"), 0, 2 * num_pairs)
    left, right = (bits % np.uint64(len(single))).astype(np.int32).reshape(num_pairs, 2).T
    x = np.concatenate([single.x[left], single.x[right]], axis=3)
    y = 10 * single.y[left] + single.y[right]
    return ArrayDataset(x, y, single.i[left] * _NUM_DIGITS + single.i[right], 100, f"digit pairs/{split}")
