"""The files of a feature bank: safetensors shards with features, logits, labels and numbers."""

import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from .._checks import check_positive
from ._arrays import check_classes
from ._shards import ShardSet

FORMAT = "epinet_eqx features 1"
INDEX = "bank.json"
DTypeName = Literal["float16", "float32"]
Rows = dict[str, np.ndarray]

_FLOATS = {"features": 2, "logits": 2}


class Piece(NamedTuple):
    """A shard: its file, and which examples of its split it holds."""

    file: str
    start: int
    stop: int


def pieces(split: str, num_examples: int, shard_size: int) -> list[Piece]:
    """Return the shards of a split."""
    count = math.ceil(num_examples / shard_size)
    return [
        Piece(f"{split}-{k:05d}-of-{count:05d}.safetensors", k * shard_size, min((k + 1) * shard_size, num_examples))
        for k in range(count)
    ]


def read_piece(path: pathlib.Path) -> Rows:
    """Return what a shard holds."""
    try:
        return safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{str(path)!r} must be a whole safetensors file; {error}.") from None


class BankWriter:
    """Writes the shards of a bank that are not there yet."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        splits: Mapping[str, int],
        *,
        feature_dim: int,
        num_classes: int,
        dtype: DTypeName,
        shard_size: int,
    ):
        """Begin a bank, or go on with one that was begun in the same way.

        Args:
            path: the folder.
            splits: number of examples of each split.
            feature_dim: number of features.
            num_classes: number of logits.
            dtype: how features and logits are stored.
            shard_size: examples of a shard.
        """
        check_positive("shard_size", shard_size)
        if dtype not in ("float16", "float32"):
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
            "format": FORMAT,
            "splits": dict(splits),
            "feature_dim": feature_dim,
            "num_classes": num_classes,
            "dtype": dtype,
            "shard_size": shard_size,
            "num_shards": sum(map(len, self.plan.values())),
        }
        self.shards = ShardSet.create(path, INDEX, spec)

    def missing(self, split: str) -> Iterator[Piece]:
        """Yield the shards of a split that are to be written."""
        yield from (piece for piece in self.plan[split] if not self.shards.has(piece.file))

    def present(self, split: str) -> Piece | None:
        """Return the first shard of a split, if it is written."""
        first = self.plan[split][0]
        return first if self.shards.has(first.file) else None

    def converted(self, where: str, rows: Mapping[str, Any]) -> Rows:
        """Return rows as they are stored, all finite, with labels that are classes."""
        result = {}
        for name in _FLOATS:
            # Too large a number becomes infinite, which is told below.
            with np.errstate(over="ignore"):
                result[name] = np.ascontiguousarray(np.asarray(rows[name]).astype(self.dtype))
            if not np.isfinite(result[name]).all():
                raise ValueError(f"`{name}` of {where} must be finite in {self.dtype}; some are not.")
        y = np.asarray(rows["y"])
        result["y"] = check_classes(where, y, self.num_classes)
        result["i"] = np.asarray(rows["i"]).astype(np.int32)
        return result

    def write(self, piece: Piece, rows: Mapping[str, Any]) -> None:
        """Write one shard."""
        converted = self.converted(piece.file, rows)
        lengths = {name: len(value) for name, value in converted.items()}
        if set(lengths.values()) != {piece.stop - piece.start}:
            raise ValueError(f"{piece.file} must hold {piece.stop - piece.start} examples; got {lengths}.")
        self.shards.write(
            piece.file,
            lambda temporary: safetensors.numpy.save_file(converted, temporary, {"format": FORMAT}),
            num_examples=piece.stop - piece.start,
        )
