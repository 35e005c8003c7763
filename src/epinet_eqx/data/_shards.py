"""Folders of shards that are written one by one, resumed and verified; encoded images in ArrayRecord shards."""

import functools as ft
import math
import pathlib
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .._checks import check_positive, require_package
from .._files import StrPath, atomic_file, is_intact, read_json, seal, sha256_of, write_json
from ._arrays import Source, check_classes, check_numbers

_RECORDS = "epinet_eqx records 1"
_RECORDS_INDEX = "records.json"
# CRC of the rest, label, number of the example, and length of the file name that precedes the image.
_HEADER = struct.Struct("<IiiH")


def is_count(value: Any) -> bool:
    """Return whether a JSON value is a positive integer."""
    return type(value) is int and value > 0


def _is_entry(entry: Any) -> bool:
    """Return whether a JSON value is a valid entry of a shard; a name with a separator could point anywhere."""
    if not isinstance(entry, dict):
        return False
    file, checksum, size = entry.get("file"), entry.get("sha256"), entry.get("bytes")
    return (
        isinstance(file, str)
        and pathlib.PurePath(file).name == file
        and isinstance(checksum, str)
        and type(size) is int
    )


class ShardSet:
    """The shards of a folder, and the index that lists them with their checksums.

    A shard is written atomically and then added to the index. Whatever interrupts the writing, listed shards are whole,
    and writing again continues with the others.
    """

    def __init__(self, path: pathlib.Path, index_name: str, spec: dict[str, Any], shards: list[dict[str, Any]]):
        """Initialize with the content of an index; see `create` and `open`."""
        self.path = path
        self.index_name = index_name
        self.spec = spec
        self.shards = shards

    @classmethod
    def create(cls, path: StrPath, index_name: str, spec: dict[str, Any]) -> "ShardSet":
        """Start a folder, or resume one that was started with the same `spec`."""
        folder = pathlib.Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / index_name).exists():
            return cls(folder, index_name, spec, [])
        found = cls._read(folder, index_name, spec["format"])
        if found.spec != spec:
            differing = [name for name in {**found.spec, **spec} if found.spec.get(name) != spec.get(name)]
            raise ValueError(
                f"`path` must be a new folder, or one that was begun with the same settings; {str(folder)!r} was begun "
                f"with other values of {', '.join(differing)}."
            )
        # Damaged shards are written again.
        found.shards = [shard for shard in found.shards if not found._damage(shard, verify=True)]
        return found

    @classmethod
    def open(
        cls,
        path: StrPath,
        index_name: str,
        form: str,
        sizes: Callable[[dict[str, Any]], dict[str, int] | None],
        *,
        verify: bool,
    ) -> "ShardSet":
        """Open a finished folder.

        Args:
            path: the folder.
            index_name: file name of the index.
            form: the format that the index must state.
            sizes: the number of examples of each shard by file, from a `spec`; None if the `spec` is invalid.
            verify: whether checksums of shards are compared, or sizes of files only.
        """
        found = cls._read(pathlib.Path(path), index_name, form)
        total: Any = found.spec.get("num_shards")
        if is_count(total) and len(found.shards) < total:
            raise ValueError(
                f"`path` must be finished; {str(path)!r} has {len(found.shards)} of {total} shards. "
                "Write it again with the same settings to resume."
            )
        # After the checks above: the names of all shards that a damaged index claims could fill the memory.
        expected = sizes(found.spec) if total == len(found.shards) else None
        if expected is None:
            raise found._broken("has a specification with missing or impossible entries")
        if {shard["file"]: shard.get("num_examples") for shard in found.shards} != expected:
            raise found._broken("lists other shards than its specification calls for")
        for shard in found.shards:
            if damage := found._damage(shard, verify=verify):
                raise ValueError(f"{str(found.path / shard['file'])!r} {damage}.")
        return found

    @classmethod
    def _read(cls, folder: pathlib.Path, index_name: str, form: str) -> "ShardSet":
        """Read an index; those of older versions have no checksum of their own."""
        content = read_json(folder / index_name)
        spec = content.get("spec") if isinstance(content, dict) else None
        if not isinstance(spec, dict) or spec.get("format") != form:
            raise ValueError(f"{str(folder / index_name)!r} must be the index of a folder of format {form}.")
        shards: Any = content.get("shards")
        listed = isinstance(shards, list) and all(map(_is_entry, shards))
        found = cls(folder, index_name, spec, shards if listed else [])
        if not listed:
            raise found._broken("must list shards with `file`, `sha256` and `bytes`")
        if len({shard["file"] for shard in shards}) < len(shards):
            raise found._broken("lists a shard twice")
        if not is_intact(content):
            raise found._broken("was changed after it was written: its checksum differs")
        return found

    def _broken(self, reason: str) -> ValueError:
        """Return an error about the index."""
        return ValueError(f"{str(self.path / self.index_name)!r} {reason}.")

    def _damage(self, shard: dict[str, Any], *, verify: bool) -> str:
        """Return a description of what is wrong with a shard, empty if nothing is."""
        path = self.path / shard["file"]
        if not path.is_file():
            return "is missing"
        if (size := path.stat().st_size) != shard["bytes"]:
            return f"must have {shard['bytes']} bytes, and is truncated or was replaced; got {size}"
        if verify and sha256_of(path) != shard["sha256"]:
            return "must have the checksum that its index has, and is damaged"
        return ""

    def has(self, file: str) -> bool:
        """Return whether a shard is written."""
        return any(shard["file"] == file for shard in self.shards)

    def write(self, file: str, write: Callable[[pathlib.Path], None], **details: Any) -> None:
        """Write a shard by a function of a temporary path, and add it to the index."""
        with atomic_file(self.path / file) as temporary:
            write(temporary)
            entry = {"file": file, "sha256": sha256_of(temporary), "bytes": temporary.stat().st_size, **details}
        self.shards = sorted([*self.shards, entry], key=lambda shard: shard["file"])
        write_json(self.path / self.index_name, seal({"spec": self.spec, "shards": self.shards}))


def shard_sizes(prefix: str, suffix: str, num_examples: int, shard_size: int) -> dict[str, int]:
    """Return the number of examples of each shard, by file name."""
    count = math.ceil(num_examples / shard_size)
    return {
        f"{prefix}-{k:05d}-of-{count:05d}{suffix}": min(shard_size, num_examples - k * shard_size) for k in range(count)
    }


def _record_sizes(spec: dict[str, Any]) -> dict[str, int] | None:
    """Return the number of records of each shard, or None for an invalid specification."""
    if not all(is_count(spec.get(name)) for name in ("num_examples", "num_classes", "shard_size")):
        return None
    if spec.get("num_shards") != math.ceil(spec["num_examples"] / spec["shard_size"]):
        return None
    return shard_sizes("shard", ".arrayrecord", spec["num_examples"], spec["shard_size"])


def _encode(example: dict[str, Any], name: str, num_classes: int) -> bytes:
    """Return a record."""
    (label,) = check_classes(repr(name), np.asarray(example["y"])[None], num_classes)
    (number,) = check_numbers(repr(name), np.asarray(example["i"])[None], 1)
    file = name.encode()[: 2**16 - 1]
    rest = _HEADER.pack(0, label, number, len(file))[4:] + file + example["x"]
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def write_records(source: Source, path: StrPath, *, num_classes: int, shard_size: int = 4096) -> None:
    """Write encoded images, such as those of an `ImageFolder`, to ArrayRecord shards.

    An interrupted call resumes when repeated with the same arguments: shards with the right checksum are kept.

    Args:
        source: examples whose `x` is the content of an image file.
        path: the folder to write.
        num_classes: number of classes; every label is checked.
        shard_size: examples per shard.
    """
    check_positive("shard_size", shard_size)
    if len(source) == 0:
        raise ValueError("`source` must hold at least one example; got none.")
    sizes = shard_sizes("shard", ".arrayrecord", len(source), shard_size)
    spec = {
        "format": _RECORDS,
        "num_examples": len(source),
        "num_classes": num_classes,
        "shard_size": shard_size,
        "num_shards": len(sizes),
    }
    shards = ShardSet.create(path, _RECORDS_INDEX, spec)
    record_writer = require_package("array_record.python.array_record_module").ArrayRecordWriter

    def write(temporary: pathlib.Path, positions: range) -> None:
        writer = record_writer(str(temporary), "group_size:1")
        try:
            for position in positions:
                writer.write(_encode(source[position], source.describe(position), num_classes))
        finally:
            writer.close()

    for number, (file, size) in enumerate(sizes.items()):
        if not shards.has(file):
            positions = range(number * shard_size, number * shard_size + size)
            shards.write(file, ft.partial(write, positions=positions), num_examples=size)


class RecordSource:
    """Encoded images from the shards of `write_records`, with the labels, numbers and names of its source."""

    def __init__(self, path: StrPath, *, verify: bool = False):
        """Open a folder of shards.

        Args:
            path: the folder.
            verify: whether the checksums of all shards are compared first. File sizes always are, and the checksum of
                each record when it is read.
        """
        self._shards = ShardSet.open(path, _RECORDS_INDEX, _RECORDS, _record_sizes, verify=verify)
        self.num_classes: int = self._shards.spec["num_classes"]
        self._readers: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # Worker processes open the files themselves.
        return {**self.__dict__, "_readers": None}

    def __len__(self) -> int:
        return self._shards.spec["num_examples"]

    def _file(self, position: int) -> str:
        """Return the shard of one example."""
        return str(self._shards.path / self._shards.shards[position // self._shards.spec["shard_size"]]["file"])

    def _read(self, position: int) -> tuple[int, int, bytes, bytes]:
        """Return the label, number, name and image of one example."""
        sources = require_package("grain.sources")
        try:
            if self._readers is None:
                files = [str(self._shards.path / shard["file"]) for shard in self._shards.shards]
                self._readers = sources.ArrayRecordDataSource(files)
            record = self._readers[position]
        # The C++ reader raises various errors, at the first example whichever file is damaged.
        except Exception as error:
            raise ValueError(f"{self._file(position)!r} must be a whole ArrayRecord file; {error}.") from None
        if len(record) < _HEADER.size or zlib.crc32(record[4:]) != int.from_bytes(record[:4], "little"):
            raise ValueError(
                f"{self._file(position)!r} must hold whole records; number "
                f"{position % self._shards.spec['shard_size']} is truncated or damaged."
            )
        _, label, number, length = _HEADER.unpack_from(record)
        if not 0 <= label < self.num_classes:
            raise ValueError(
                f"{self._file(position)!r} must hold labels from 0 to {self.num_classes - 1}; got {label} in number "
                f"{position % self._shards.spec['shard_size']}."
            )
        return label, number, record[_HEADER.size :][:length], record[_HEADER.size + length :]

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example, whose `x` is the content of an image file."""
        label, number, _, content = self._read(position)
        return {"x": content, "y": np.int32(label), "i": np.int32(number)}

    def describe(self, position: int) -> str:
        """Return the file that one example was converted from, and its shard."""
        return f"{self._read(position)[2].decode(errors='replace')} in {self._file(position)}"
