"""Data sets in several files, written one by one: resumed where a run ended, and checked by checksums."""

import os
import pathlib
from collections.abc import Callable
from typing import Any

from .._files import atomic_file, read_json, sha256_of, write_json


class ShardSet:
    """The shards of a folder and the index that lists them, which is rewritten after each shard.

    A shard appears under its name when it is whole, and in the index when it has a checksum. Whatever ends the writing,
    what the index lists is whole, and writing again goes on with what it does not list.
    """

    def __init__(self, path: pathlib.Path, index_name: str, spec: dict[str, Any], shards: list[dict[str, Any]]):
        """Initialize with the content of an index; see `create` and `open`."""
        self.path = path
        self.index_name = index_name
        self.spec = spec
        self.shards = shards

    @classmethod
    def create(cls, path: str | os.PathLike[str], index_name: str, spec: dict[str, Any]) -> "ShardSet":
        """Begin a new folder, or go on with one that was begun with the same `spec`."""
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
        # A damaged shard is as good as a missing one: it is written again.
        found.shards = [shard for shard in found.shards if not found._damage(shard, verify=True)]
        return found

    @classmethod
    def open(cls, path: str | os.PathLike[str], index_name: str, form: str, *, verify: bool) -> "ShardSet":
        """Open a finished folder; `verify` compares checksums and not only sizes."""
        found = cls._read(pathlib.Path(path), index_name, form)
        if len(found.shards) != found.spec["num_shards"]:
            raise ValueError(
                f"`path` must be finished; {str(path)!r} has {len(found.shards)} of {found.spec['num_shards']} shards. "
                "Write it again with the same settings to go on."
            )
        for shard in found.shards:
            if damage := found._damage(shard, verify=verify):
                raise ValueError(f"{str(found.path / shard['file'])!r} {damage}.")
        return found

    @classmethod
    def _read(cls, folder: pathlib.Path, index_name: str, form: str) -> "ShardSet":
        """Read an index."""
        content = read_json(folder / index_name)
        spec = content.get("spec") if isinstance(content, dict) else None
        if not isinstance(spec, dict) or spec.get("format") != form:
            raise ValueError(f"{str(folder / index_name)!r} must be the index of a folder of format {form}.")
        return cls(folder, index_name, spec, content["shards"])

    def _damage(self, shard: dict[str, Any], *, verify: bool) -> str:
        """Return what is wrong with a shard, or nothing."""
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
        """Write a shard by a function of a temporary name, and list it."""
        with atomic_file(self.path / file) as temporary:
            write(temporary)
            entry = {"file": file, "sha256": sha256_of(temporary), "bytes": temporary.stat().st_size, **details}
        self.shards = sorted([*self.shards, entry], key=lambda shard: shard["file"])
        write_json(self.path / self.index_name, {"spec": self.spec, "shards": self.shards})
