"""One JSON file per run: its configuration and the hash of it, its seed, its rows of results, its provenance."""

import dataclasses
import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import write_atomically

FORMAT = 1
"""Version of the file format; a record of another format is computed again."""

Scalar = str | int | float | bool
Row = Mapping[str, Scalar]


@dataclass(frozen=True, kw_only=True)
class Record:
    """The results of one run, and all it takes to know where they come from."""

    artifact: str
    unit: str
    hash: str
    version: str
    config: Mapping[str, Any]
    seed: int
    rows: Sequence[Row]
    provenance: Mapping[str, Any]
    format: int = FORMAT
    # Of everything else, against damage on the disk; records of older versions have none.
    checksum: str = ""


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A record that can stand for the run, or why there is none; `reason` is empty where there is no file at all."""

    record: Record | None
    reason: str = ""


def config_hash(*, artifact: str, unit: str, config: Any, seed: int, version: str, source: bytes) -> str:
    """Return the hash that a record must have to stand for this run.

    Args:
        artifact: id of the artifact.
        unit: name of the run within it.
        config: the run's configuration, a dataclass.
        seed: the artifact's seed.
        version: version of the package.
        source: source of the experiment, so that a change of it is noticed.
    """
    parts = {
        "format": FORMAT,
        "artifact": artifact,
        "unit": unit,
        "config": [type(config).__name__, dataclasses.asdict(config)],
        "seed": seed,
        "version": version,
        "source": hashlib.sha256(source).hexdigest(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def plain(value: Any) -> Scalar:
    """Return a number as JSON can hold it: arrays of one element as Python numbers, non-finite ones as words."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"A row of results must hold strings and numbers; got {type(value).__name__}.")
    return value


def _checksum(content: Mapping[str, Any]) -> str:
    """Return the CRC-32 of the content of a record, whatever the order of its names."""
    rest = {name: value for name, value in content.items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}"


def write(path: Path, record: Record) -> Record:
    """Write a record, atomically, and return it as it was written."""
    rows = [{name: plain(value) for name, value in row.items()} for row in record.rows]
    written = dataclasses.replace(record, rows=rows)
    # As it will be read: JSON has no tuples, and only strings for names.
    content = json.loads(json.dumps(dataclasses.asdict(written)))
    written = dataclasses.replace(written, checksum=_checksum(content))
    write_atomically(path, (json.dumps(dataclasses.asdict(written), indent=1) + "\n").encode())
    return written


def look_up(path: Path, *, wanted: str, version: str) -> Lookup:
    """Return the record at `path` if it is whole and has the hash `wanted`."""
    try:
        content = json.loads(path.read_bytes())
        record = Record(**content)
        if record.checksum and record.checksum != _checksum(content):
            raise ValueError("the checksum differs")
    except FileNotFoundError:
        return Lookup(record=None)
    except (OSError, ValueError, TypeError, RecursionError):
        return Lookup(record=None, reason="the record is damaged or cut off")
    if record.format != FORMAT or record.version != version:
        return Lookup(record=None, reason=f"the record is of version {record.version}, this is {version}")
    if record.hash != wanted:
        return Lookup(record=None, reason="the record is of another configuration or experiment")
    return Lookup(record=record)
