"""Fashion-MNIST, and anything else in the IDX format."""

import gzip
import math
import os
import pathlib
from typing import Literal

import numpy as np
from jaxtyping import UInt8

from .._files import require_folder
from ._arrays import ArrayDataset, check_classes

_PREFIXES = {"train": "train", "test": "t10k"}


def read_idx(path: str | os.PathLike[str]) -> UInt8[np.ndarray, "..."]:
    """Read an IDX file of bytes, compressed by gzip or not."""
    path = pathlib.Path(path)
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, OSError, ValueError) as error:
        raise ValueError(f"{str(path)!r} must be a whole gzip file; {error}.") from None
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(
            f"{str(path)!r} must be an IDX file of bytes; it begins with {content[:4].hex() or 'nothing'}."
        )
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    if len(content) - start != math.prod(shape):
        raise ValueError(f"{str(path)!r} must hold an array of shape {shape}; got {len(content) - start} bytes.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _locate(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Return the file of this name, with or without `.gz`."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"`path` must hold {name} or {name}.gz; {str(folder)!r} does not.")


def fashion_mnist(path: str | os.PathLike[str], split: Literal["train", "test"]) -> ArrayDataset:
    """Return Fashion-MNIST, as bytes of shape (1, 28, 28); an example's number is its position in the split.

    Args:
        path: the folder of the four official IDX files; Debian's package `dataset-fashion-mnist` has one.
        split: which split.
    """
    if split not in _PREFIXES:
        raise ValueError(f'`split` must be "train" or "test"; got {split!r}.')
    folder = require_folder("path", path)
    image_path = _locate(folder, f"{_PREFIXES[split]}-images-idx3-ubyte")
    label_path = _locate(folder, f"{_PREFIXES[split]}-labels-idx1-ubyte")
    images, labels = read_idx(image_path), read_idx(label_path)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{str(label_path)!r} must have one label per image of {str(image_path)!r}, an array of shape "
            f"{images.shape}; got shape {labels.shape}."
        )
    y = check_classes(repr(str(label_path)), labels.astype(np.int32), 10)
    return ArrayDataset.of(images[:, None], y, num_classes=10, name=str(image_path))
