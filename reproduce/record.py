"""Runs and their records: one JSON file per run, read once, and one CSV per artifact.

A record has the run's configuration and the hash of it, its seed, its rows of results and its provenance.
"""

import csv
import dataclasses
import hashlib
import io
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .artifact import Artifact
from .files import write_atomically
from .paths import Output
from .provenance import package_version

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
    # Whether its rows are accepted numbers instead of a run's.
    restored: bool = False
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


def _text(value: Scalar) -> str:
    """Return a value as the CSV has it; nine digits distinguish all single-precision numbers."""
    return format(value, ".9g") if isinstance(value, float) else str(value)


def to_csv(records: Iterable[Record]) -> str:
    """Return the rows of all records as CSV: one row per row, the union of their columns, the unit's name first."""
    rows = [{"unit": record.unit, **row} for record in records for row in record.rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def write_csv(path: Path, records: Iterable[Record]) -> None:
    """Write the CSV of an artifact, atomically; an unchanged file keeps its time stamp."""
    content = to_csv(records).encode()
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


Key = tuple[str, str]
"""A folder of records and the name of a run in it; artifacts that share the folder share the run."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: its configuration, and the hash that its record must have."""

    artifact: str
    folder: str
    unit: str
    config: Any
    seed: int
    hash: str

    @property
    def key(self) -> Key:
        """The key that distinguishes it from other runs."""
        return self.folder, self.unit

    def record(self, rows: Sequence[Row], provenance: Mapping[str, Any], *, restored: bool = False) -> Record:
        """Return its record with these rows; see `Record`."""
        return Record(
            artifact=self.folder,
            unit=self.unit,
            hash=self.hash,
            version=package_version(),
            config=dataclasses.asdict(self.config),
            seed=self.seed,
            rows=rows,
            provenance=provenance,
            restored=restored,
        )


def wanted_hash(artifact: Artifact, unit: str, config: Any) -> str:
    """Return the hash that a record of this run must have; it depends on the code of this process."""
    return config_hash(
        artifact=artifact.folder,
        unit=unit,
        config=config,
        seed=artifact.seed,
        version=package_version(),
        source=artifact.source,
    )


class Records:
    """The records in an output folder."""

    def __init__(self, output: Output):
        """Initialize with the folder; nothing is read yet."""
        self.output = output
        self._jobs: dict[str, list[Job]] = {}
        self._found: dict[Key, Lookup] = {}

    def jobs(self, artifact: Artifact) -> list[Job]:
        """Return the runs of an artifact."""
        if artifact.id not in self._jobs:
            units = artifact.at_tier(self.output.tier, self.output.variant).units()
            self._jobs[artifact.id] = [
                Job(
                    artifact=artifact.id,
                    folder=artifact.folder,
                    unit=unit,
                    config=config,
                    seed=artifact.seed,
                    hash=wanted_hash(artifact, unit, config),
                )
                for unit, config in units.items()
            ]
        return self._jobs[artifact.id]

    def look_up(self, job: Job) -> Lookup:
        """Return the record of a run, or why there is none."""
        if job.key not in self._found:
            path = self.output.record(*job.key)
            self._found[job.key] = look_up(path, wanted=job.hash, version=package_version())
        return self._found[job.key]

    def of(self, artifact: Artifact) -> list[Record]:
        """Return the records of an artifact that there are."""
        found = [self.look_up(job).record for job in self.jobs(artifact)]
        return [one for one in found if one is not None]

    def is_complete(self, artifact: Artifact) -> bool:
        """Return whether all runs of an artifact have records."""
        return len(self.of(artifact)) == len(self.jobs(artifact))

    def add(self, new: Record) -> None:
        """Write a record."""
        written = write(self.output.record(new.artifact, new.unit), new)
        self._found[new.artifact, new.unit] = Lookup(record=written)
