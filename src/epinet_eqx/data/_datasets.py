"""Public data sets: CIFAR in each of its formats, Fashion-MNIST and other IDX files, and scikit-learn's digits."""

import functools as ft
import gzip
import importlib.util
import io
import math
import pathlib
import zlib
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray, Shaped, UInt8

from .._checks import check_positive
from .._files import StrPath, read_npz, require_file, require_folder
from .._keys import raw_bits, stream_of
from .._pickled import read_pickled_arrays
from ._arrays import ArrayDataset, check_classes
from ._images import CorruptImageError, decode

_PIXELS = 3 * 32 * 32
_NUM_DIGITS = 1797
# The file is sorted by writer, so the two parts have no writer in common.
_NUM_TRAIN = 1437
_PREFIXES = {"train": "train", "test": "t10k"}
# No IDX file in use has more, and numpy allows 64.
_MAX_AXES = 16

Images = tuple[UInt8[np.ndarray, "batch channels height width"], Shaped[np.ndarray, " batch"]]
Split = Literal["train", "test"]


def _check_split(split: str) -> None:
    """Raise unless `split` is one of the two."""
    if split not in ("train", "test"):
        raise ValueError(f'`split` must be "train" or "test"; got {split!r}.')


class _Kind(NamedTuple):
    """The layout of one of the two data sets; the label is the last byte before the pixels."""

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
    return records[:, num_labels:].reshape(-1, 3, 32, 32), records[:, num_labels - 1]


def _read_python(path: pathlib.Path, label: str) -> Images:
    """Read a dictionary with the pixels and a list of labels."""
    content = read_pickled_arrays(path)
    pixels, labels = content.get("data"), content.get(label)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"{str(path)!r} must have an entry `data` with rows of {_PIXELS} bytes.")
    if not isinstance(labels, list) or not all(type(y) is int for y in labels) or len(labels) != len(pixels):
        raise ValueError(f"{str(path)!r} must have an entry `{label}`, a list of {len(pixels)} integers.")
    if not all(0 <= y < 256 for y in labels):
        raise ValueError(f"{str(path)!r} must have an entry `{label}` with labels of one byte.")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int32)


def _read_sheet(path: pathlib.Path) -> UInt8[np.ndarray, "batch channels height width"]:
    """Read an image that holds small images of 32 x 32 pixels in row-major order."""
    try:
        pixels = np.asarray(decode(path.read_bytes()))
    except CorruptImageError as error:
        raise ValueError(f"{str(path)!r} {error}.") from None
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
    return x, labels[split]


def _find(name: str, path: pathlib.Path, split: Split) -> tuple[pathlib.Path, list[Images]]:
    """Return the folder that exists, and the content of its files."""
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
    """Return the content of a file, after checking its labels."""
    return images[0], check_classes(repr(str(path)), images[1], kind.num_classes)


def cifar(path: StrPath, split: Split, *, name: Literal["cifar10", "cifar100"] = "cifar10") -> ArrayDataset:
    """Return CIFAR-10 or CIFAR-100 (with its 100 fine classes), as bytes with channels first.

    An example's number is its position in the split. The pickles of the python version are read as data, so nothing in
    them runs.

    Args:
        path: a folder with the official binary or python version, the official folder itself, or for CIFAR-10 a folder
            of lossless sheets `train_00.webp`, ... with `labels.npz`.
        split: which split.
        name: which of the two data sets.
    """
    if name not in _KINDS:
        raise ValueError(f'`name` must be "cifar10" or "cifar100"; got {name!r}.')
    _check_split(split)
    folder, parts = _find(name, require_folder("path", path), split)
    x = np.concatenate([part[0] for part in parts])
    y = np.concatenate([part[1] for part in parts])
    return ArrayDataset(x, y, num_classes=_KINDS[name].num_classes, name=f"{folder}/{split}")


def _decompress(where: str, content: bytes) -> bytes:
    """Return the content of a gzip file, which may expand a hundredfold, as IDX files of images do."""
    limit = 100 * len(content) + 2**20
    try:
        with gzip.open(io.BytesIO(content)) as file:
            result = file.read(limit + 1)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"{where} must be a whole gzip file; {error}.") from None
    if len(result) > limit:
        raise ValueError(f"{where} must not be compressed more than a hundredfold.")
    return result


def read_idx(path: StrPath) -> UInt8[np.ndarray, "..."]:
    """Read an IDX file of bytes, such as those of MNIST and its relatives, compressed by gzip or not."""
    path = pathlib.Path(path)
    content = path.read_bytes()
    where = repr(str(path))
    if content[:2] == b"\x1f\x8b":
        content = _decompress(where, content)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{where} must be an IDX file of bytes; it begins with {content[:4].hex() or 'nothing'}.")
    start = 4 + 4 * content[3]
    if content[3] > _MAX_AXES or len(content) < start:
        raise ValueError(f"{where} must have the sizes of its {content[3]} axes, {_MAX_AXES} at most.")
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    if len(content) - start != math.prod(shape):
        raise ValueError(f"{where} must hold an array of shape {shape}; got {len(content) - start} bytes.")
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    # Sizes whose product overflows although one of them is zero.
    except ValueError as error:
        raise ValueError(f"{where} must hold an array of shape {shape}; {error}.") from None


def _locate(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Return the file of this name, with or without `.gz`."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"`path` must hold {name} or {name}.gz; {str(folder)!r} does not.")


def fashion_mnist(path: StrPath, split: Literal["train", "test"]) -> ArrayDataset:
    """Return Fashion-MNIST, as bytes of shape (1, 28, 28); an example's number is its position in the split.

    Args:
        path: the folder of the four official IDX files; Debian's package `dataset-fashion-mnist` has one.
        split: which split.
    """
    _check_split(split)
    folder = require_folder("path", path)
    image_path = _locate(folder, f"{_PREFIXES[split]}-images-idx3-ubyte")
    label_path = _locate(folder, f"{_PREFIXES[split]}-labels-idx1-ubyte")
    images, labels = read_idx(image_path), read_idx(label_path)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{str(label_path)!r} must have one label per image of {str(image_path)!r}, an array of shape "
            f"{images.shape}; got shape {labels.shape}."
        )
    y = check_classes(repr(str(label_path)), labels, 10)
    return ArrayDataset(images[:, None], y, num_classes=10, name=str(image_path))


@ft.cache
def _table() -> np.ndarray:
    """Return the digits as rows of 64 pixels from 0 to 16 and a label, from the files of scikit-learn.

    The package is located but not imported, which would take a hundred times as long.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ImportError("`sklearn` is needed for the digits; install it with `pip install 'epinet_eqx[data]'`.")
    path = require_file(pathlib.Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz")
    values = np.array(gzip.decompress(path.read_bytes()).replace(b"\n", b",").split(b",")[: _NUM_DIGITS * 65], float)
    if values.size != _NUM_DIGITS * 65:
        raise ValueError(f"{str(path)!r} must hold {_NUM_DIGITS} rows of 65 numbers; got {values.size} numbers.")
    return values.reshape(_NUM_DIGITS, 65)


def digits(split: Split) -> ArrayDataset:
    """Return scikit-learn's digits: 1797 images of 8 x 8 pixels between 0 and 1, of 10 classes.

    The first four fifths of the file are for training, the rest for testing. An example's number is its row.
    """
    _check_split(split)
    positions = np.arange(_NUM_TRAIN) if split == "train" else np.arange(_NUM_TRAIN, _NUM_DIGITS)
    table = _table()
    x = (table[positions, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = table[positions, 64].astype(np.int32)
    return ArrayDataset(x, y, positions, 10, f"digits/{split}")


def digit_pairs(split: Split, num_pairs: int = 10_000, *, key: PRNGKeyArray) -> ArrayDataset:
    """Return pairs of digits side by side: images of 8 x 16 pixels between 0 and 1, of 100 classes.

    Both digits of a pair come from the same split, so training has seen no digit of a test pair. A larger draw of the
    same key begins with a smaller one. The label is the two-digit number. An example's number identifies its two
    digits, so a pair has the same number wherever it is drawn.

    Args:
        split: which digits to draw from.
        num_pairs: number of pairs, drawn independently and with replacement.
        key: random key; each split has its own stream.
    """
    check_positive("num_pairs", num_pairs)
    single = digits(split)
    bits = raw_bits(stream_of(key, f"digit pairs, {split}"), 0, 2 * num_pairs)
    left, right = (bits % np.uint64(len(single))).astype(np.int32).reshape(num_pairs, 2).T
    x = np.concatenate([single.x[left], single.x[right]], axis=3)
    y = 10 * single.y[left] + single.y[right]
    return ArrayDataset(x, y, single.i[left] * _NUM_DIGITS + single.i[right], 100, f"digit pairs/{split}")
