"""ArrayRecord shards of encoded images: an image folder in a few large files."""

import functools as ft
import math
import os
import pathlib
import struct
import zlib
from typing import Any

import numpy as np

from .._checks import check_positive, require_package
from ._shards import ShardSet
from ._source import Source

_FORMAT = "epinet_eqx records 1"
_INDEX = "records.json"
# A checksum of what follows, the label, the example's number, and the length of its name, which comes before the image.
_HEADER = struct.Struct("<IiiH")


def _encode(example: dict[str, Any], name: bytes) -> bytes:
    """Return a record."""
    rest = _HEADER.pack(0, int(example["y"]), int(example["i"]), len(name))[4:] + name + example["x"]
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def write_records(source: Source, path: str | os.PathLike[str], *, num_classes: int, shard_size: int = 4096) -> None:
    """Write encoded images, as an `ImageFolder` has them, to ArrayRecord shards.

    Interrupted, it goes on where it was when called again with the same arguments; shards that are whole, by their
    checksums, are not written again.

    Args:
        source: examples whose `x` is the content of an image file.
        path: the folder to write.
        num_classes: number of classes; every label is checked.
        shard_size: examples of a shard.
    """
    check_positive("shard_size", shard_size)
    num_shards = math.ceil(len(source) / shard_size)
    if num_shards == 0:
        raise ValueError("`source` must hold at least one example; got none.")
    spec = {
        "format": _FORMAT,
        "num_examples": len(source),
        "num_classes": num_classes,
        "shard_size": shard_size,
        "num_shards": num_shards,
    }
    shards = ShardSet.create(path, _INDEX, spec)
    record_writer = require_package("array_record.python.array_record_module").ArrayRecordWriter

    def write(temporary: pathlib.Path, positions: range) -> None:
        writer = record_writer(str(temporary), "group_size:1")
        try:
            for position in positions:
                example, name = source[position], source.describe(position)
                if not 0 <= example["y"] < num_classes:
                    raise ValueError(f"{name!r} must have a label from 0 to {num_classes - 1}; got {example['y']}.")
                writer.write(_encode(example, name.encode()))
        finally:
            writer.close()

    for number in range(num_shards):
        file = f"shard-{number:05d}-of-{num_shards:05d}.arrayrecord"
        positions = range(number * shard_size, min((number + 1) * shard_size, len(source)))
        if not shards.has(file):
            shards.write(file, ft.partial(write, positions=positions), num_examples=len(positions))


class RecordSource:
    """Encoded images out of the shards that `write_records` wrote; labels, numbers and names are the source's."""

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False):
        """Open a folder of shards.

        Args:
            path: the folder.
            verify: whether all checksums are compared first; sizes always are, and each record when it is read.
        """
        self._shards = ShardSet.open(path, _INDEX, _FORMAT, verify=verify)
        self.num_classes: int = self._shards.spec["num_classes"]
        self._readers: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers open the files themselves.
        return {**self.__dict__, "_readers": None}

    def __len__(self) -> int:
        return self._shards.spec["num_examples"]

    def _file(self, position: int) -> str:
        """Return the shard of one example."""
        return str(self._shards.path / self._shards.shards[position // self._shards.spec["shard_size"]]["file"])

    def _read(self, position: int) -> tuple[int, int, bytes, bytes]:
        """Return the label, number, name and image of one example."""
        if self._readers is None:
            files = [str(self._shards.path / shard["file"]) for shard in self._shards.shards]
            self._readers = require_package("grain.sources").ArrayRecordDataSource(files)
        try:
            record = self._readers[position]
        except Exception as error:
            raise ValueError(f"{self._file(position)!r} must be a whole ArrayRecord file; {error}.") from None
        if len(record) < _HEADER.size or zlib.crc32(record[4:]) != int.from_bytes(record[:4], "little"):
            raise ValueError(
                f"{self._file(position)!r} must hold whole records; number "
                f"{position % self._shards.spec['shard_size']} is truncated or damaged."
            )
        _, label, number, length = _HEADER.unpack_from(record)
        return label, number, record[_HEADER.size :][:length], record[_HEADER.size + length :]

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example, whose `x` is the content of an image file."""
        label, number, _, content = self._read(position)
        return {"x": content, "y": np.int32(label), "i": np.int32(number)}

    def describe(self, position: int) -> str:
        """Return the file that one example was converted from, and the shard that it is in."""
        return f"{self._read(position)[2].decode()} in {self._file(position)}"
