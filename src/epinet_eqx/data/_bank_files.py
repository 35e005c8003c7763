"""The files of a feature bank: safetensors shards of features, logits, labels and numbers."""

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from .._checks import check_positive
from .._files import StrPath
from ._arrays import check_classes, check_numbers
from ._shards import ShardSet, is_count, shard_sizes

_FORMAT = "epinet_eqx features 1"
_INDEX = "bank.json"
DTypeName = Literal["float16", "float32"]
Rows = dict[str, np.ndarray]

_FLOATS = ("features", "logits")
_TYPES = {"float16": "F16", "float32": "F32"}


class Piece(NamedTuple):
    """A shard: its file, and the positions of its examples in their split."""

    file: str
    start: int
    stop: int


def pieces(split: str, num_examples: int, shard_size: int) -> list[Piece]:
    """Return the shards of a split."""
    files = shard_sizes(split, ".safetensors", num_examples, shard_size)
    return [Piece(file, k * shard_size, k * shard_size + size) for k, (file, size) in enumerate(files.items())]


def _piece_sizes(spec: dict[str, Any]) -> dict[str, int] | None:
    """Return the number of examples of each shard, or None for an invalid specification."""
    splits = spec.get("splits")
    if not isinstance(splits, dict) or not all(name.isidentifier() and is_count(n) for name, n in splits.items()):
        return None
    if not splits or not is_count(spec.get("shard_size")) or spec.get("dtype") not in list(_TYPES):
        return None
    # A bank of outputs alone has no features.
    if not all(type(spec.get(name)) is int and spec[name] >= 0 for name in ("feature_dim", "num_classes")):
        return None
    if sum(-(-size // spec["shard_size"]) for size in splits.values()) != spec["num_shards"]:
        return None
    plan = [piece for split, size in splits.items() for piece in pieces(split, size, spec["shard_size"])]
    return {piece.file: piece.stop - piece.start for piece in plan}


def open_bank(path: StrPath, *, verify: bool) -> ShardSet:
    """Open a finished bank, and compare the shapes and types that its shards state with the index."""
    shards = ShardSet.open(path, _INDEX, _FORMAT, _piece_sizes, verify=verify)
    for shard in shards.shards:
        file = shards.path / shard["file"]
        floats, rows = _TYPES[shards.spec["dtype"]], shard["num_examples"]
        expected = {
            "features": (floats, [rows, shards.spec["feature_dim"]]),
            "logits": (floats, [rows, shards.spec["num_classes"]]),
            "y": ("I32", [rows]),
            "i": ("I32", [rows]),
        }
        try:
            with safetensors.safe_open(file, framework="numpy") as opened:
                slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (not a dictionary)
                found = {name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()}
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{str(file)!r} must be a whole safetensors file; {error}.") from None
        if found != expected:
            raise ValueError(f"{str(file)!r} must hold what its index states, {expected}; got {found}.")
    return shards


def read_piece(path: pathlib.Path) -> Rows:
    """Return the arrays of a shard."""
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} must be a whole safetensors file; {error}.") from None


class BankWriter:
    """Writes the missing shards of a bank."""

    def __init__(
        self,
        path: StrPath,
        splits: Mapping[str, int],
        *,
        feature_dim: int,
        num_classes: int,
        dtype: DTypeName,
        shard_size: int,
    ):
        """Start a bank, or resume one that was started with the same arguments.

        Args:
            path: the folder.
            splits: number of examples per split.
            feature_dim: number of features.
            num_classes: number of logits.
            dtype: the stored type of features and logits.
            shard_size: examples per shard.
        """
        check_positive("shard_size", shard_size)
        if dtype not in _TYPES:
            raise ValueError(f'`dtype` must be "float16" or "float32"; got {dtype!r}.')
        for split, size in splits.items():
            if size == 0:
                raise ValueError(f"Split `{split}` must hold at least one example; got none.")
            if not split.isidentifier():
                raise ValueError(f"The name of a split must be a word, since files are named by it; got {split!r}.")
        self.plan = {split: pieces(split, size, shard_size) for split, size in splits.items()}
        self.num_classes = num_classes
        self.dtype = dtype
        spec = {
            "format": _FORMAT,
            "splits": dict(splits),
            "feature_dim": feature_dim,
            "num_classes": num_classes,
            "dtype": dtype,
            "shard_size": shard_size,
            "num_shards": sum(map(len, self.plan.values())),
        }
        self.shards = ShardSet.create(path, _INDEX, spec)

    def missing(self, split: str) -> Iterator[Piece]:
        """Yield the shards of a split that are not written yet."""
        yield from (piece for piece in self.plan[split] if not self.shards.has(piece.file))

    def present(self, split: str) -> Piece | None:
        """Return the first shard of a split, if it is written."""
        first = self.plan[split][0]
        return first if self.shards.has(first.file) else None

    def converted(self, where: str, rows: Mapping[str, Any]) -> Rows:
        """Return rows in the stored types: floats that are finite, and labels that are classes."""
        result = {}
        for name in _FLOATS:
            # Overflow gives infinities, which the next lines report.
            with np.errstate(over="ignore"):
                result[name] = np.ascontiguousarray(np.asarray(rows[name]).astype(self.dtype))
            if not np.isfinite(result[name]).all():
                raise ValueError(f"`{name}` of {where} must be finite in {self.dtype}; some are not.")
        result["y"] = check_classes(where, rows["y"], self.num_classes)
        result["i"] = check_numbers(where, rows["i"], len(result["y"]))
        return result

    def write(self, piece: Piece, rows: Mapping[str, Any]) -> None:
        """Write one shard."""
        converted = self.converted(piece.file, rows)
        lengths = {name: len(value) for name, value in converted.items()}
        if set(lengths.values()) != {piece.stop - piece.start}:
            raise ValueError(f"{piece.file} must hold {piece.stop - piece.start} examples; got {lengths}.")
        self.shards.write(
            piece.file,
            lambda temporary: safetensors.numpy.save_file(converted, temporary, {"format": _FORMAT}),
            num_examples=piece.stop - piece.start,
        )
