"""CIFAR-10 and CIFAR-100 in every form in which they come: official binary, official python, sheets of images."""

import os
import pathlib
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from .._checks import require_package
from .._files import read_npz, require_file, require_folder
from .._pickled import read_pickled_arrays
from ._arrays import ArrayDataset, check_classes

_PIXELS = 3 * 32 * 32

Images = tuple[UInt8[np.ndarray, "batch channels height width"], Int[np.ndarray, " batch"]]
Split = Literal["train", "test"]


class _Kind(NamedTuple):
    """How one of the two data sets is laid out; the label byte used is the last one before the pixels."""

    num_classes: int
    binary: tuple[str, dict[str, list[str]], int]
    python: tuple[str, dict[str, list[str]], str]


_KINDS = {
    "cifar10": _Kind(
        10,
        (
            "cifar-10-batches-bin",
            {"train": [f"data_batch_{part}.bin" for part in range(1, 6)], "test": ["test_batch.bin"]},
            1,
        ),
        (
            "cifar-10-batches-py",
            {"train": [f"data_batch_{part}" for part in range(1, 6)], "test": ["test_batch"]},
            "labels",
        ),
    ),
    "cifar100": _Kind(
        100,
        ("cifar-100-binary", {"train": ["train.bin"], "test": ["test.bin"]}, 2),
        ("cifar-100-python", {"train": ["train"], "test": ["test"]}, "fine_labels"),
    ),
}


def _read_binary(path: pathlib.Path, num_labels: int) -> Images:
    """Read records of label bytes and 3072 pixels, channels first."""
    content = np.frombuffer(path.read_bytes(), np.uint8)
    size = num_labels + _PIXELS
    if content.size == 0 or content.size % size:
        raise ValueError(f"{str(path)!r} must hold whole records of {size} bytes; got {content.size} bytes.")
    records = content.reshape(-1, size)
    return records[:, num_labels:].reshape(-1, 3, 32, 32), records[:, num_labels - 1].astype(np.int32)


def _read_python(path: pathlib.Path, label: str) -> Images:
    """Read a dictionary with the pixels and a list of labels."""
    content = read_pickled_arrays(path)
    pixels, labels = content.get("data"), content.get(label)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"{str(path)!r} must have an entry `data` with rows of {_PIXELS} bytes.")
    if not isinstance(labels, list) or not all(isinstance(y, int) for y in labels) or len(labels) != len(pixels):
        raise ValueError(f"{str(path)!r} must have an entry `{label}`, a list of {len(pixels)} integers.")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int32)


def _read_sheet(path: pathlib.Path) -> UInt8[np.ndarray, "batch channels height width"]:
    """Read an image that holds small images of 32 x 32 pixels in row-major order."""
    image = require_package("PIL.Image")
    try:
        with image.open(path) as opened:
            pixels = np.asarray(opened.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{str(path)!r} must be a readable image; {error}.") from None
    if pixels.shape[0] % 32 or pixels.shape[1] % 32:
        raise ValueError(f"{str(path)!r} must have sides that 32 divides; got {pixels.shape[:2]}.")
    rows, columns = pixels.shape[0] // 32, pixels.shape[1] // 32
    tiles = pixels.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles).reshape(-1, 3, 32, 32)


def _read_sheets(folder: pathlib.Path, split: Split) -> Images:
    """Read sheets `SPLIT_00.webp`, `SPLIT_01.webp`, ... and the labels beside them."""
    x = np.concatenate([_read_sheet(path) for path in sorted(folder.glob(f"{split}_*.webp"))])
    path = folder / "labels.npz"
    labels = read_npz(path)
    if split not in labels or labels[split].shape != (len(x),):
        raise ValueError(f"{str(path)!r} must have an entry `{split}` with {len(x)} labels.")
    return x, labels[split].astype(np.int32)


def _find(name: str, path: pathlib.Path, split: Split) -> tuple[pathlib.Path, list[Images]]:
    """Return the folder that was found, and what each of its files holds."""
    kind = _KINDS[name]
    (binary, binary_files, num_labels), (python, python_files, label) = kind.binary, kind.python
    for folder in (path / binary, path):
        if (folder / binary_files[split][0]).is_file():
            files = [folder / file for file in binary_files[split]]
            return folder, [_checked(file, _read_binary(require_file(file), num_labels), kind) for file in files]
    for folder in (path / python, path):
        if (folder / python_files[split][0]).is_file():
            files = [folder / file for file in python_files[split]]
            return folder, [_checked(file, _read_python(require_file(file), label), kind) for file in files]
    for folder in (path / name, path):
        if name == "cifar10" and any(folder.glob(f"{split}_*.webp")):
            return folder, [_checked(folder / "labels.npz", _read_sheets(folder, split), kind)]
    raise FileNotFoundError(
        f"`path` must hold the {split} split of {name}: {binary}/{binary_files[split][0]} or "
        f"{python}/{python_files[split][0]}; {str(path)!r} does not. "
        f"Get it with `python -m epinet_eqx.data fetch {name} --to {path}`."
    )


def _checked(path: pathlib.Path, images: Images, kind: _Kind) -> Images:
    """Return what a file holds, with labels that are classes."""
    return images[0], check_classes(repr(str(path)), images[1], kind.num_classes)


def cifar(
    path: str | os.PathLike[str], split: Split, *, name: Literal["cifar10", "cifar100"] = "cifar10"
) -> ArrayDataset:
    """Return CIFAR-10 or CIFAR-100 (with its 100 fine classes), as bytes with channels first.

    An example's number is its position in the split. The pickles of the python version are read as data and cannot run
    code.

    Args:
        path: a folder with the official binary or python version, the official folder itself, or for CIFAR-10 a folder
            of lossless sheets `train_00.webp`, ... with `labels.npz`.
        split: which split.
        name: which of the two data sets.
    """
    if name not in _KINDS:
        raise ValueError(f'`name` must be "cifar10" or "cifar100"; got {name!r}.')
    if split not in ("train", "test"):
        raise ValueError(f'`split` must be "train" or "test"; got {split!r}.')
    folder, parts = _find(name, require_folder("path", path), split)
    x = np.concatenate([part[0] for part in parts])
    y = np.concatenate([part[1] for part in parts])
    return ArrayDataset.of(x, y, num_classes=_KINDS[name].num_classes, name=f"{folder}/{split}")
