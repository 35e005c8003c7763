"""The runs of artifacts and their records, each of which is read from disk once."""

from dataclasses import dataclass
from typing import Any

from . import record
from .artifact import Artifact
from .paths import Output
from .provenance import package_version
from .record import Lookup, Record

Key = tuple[str, str]
"""A folder of records and the name of a run in it; artifacts that share the folder share the run."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: its configuration, and the hash that its record must have."""

    artifact: str
    folder: str
    unit: str
    config: Any
    hash: str

    @property
    def key(self) -> Key:
        """What tells it from other runs."""
        return self.folder, self.unit


def wanted_hash(artifact: Artifact, unit: str, config: Any) -> str:
    """Return the hash that a record of this run must have; it depends on the code of this process."""
    return record.config_hash(
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
                    hash=wanted_hash(artifact, unit, config),
                )
                for unit, config in units.items()
            ]
        return self._jobs[artifact.id]

    def look_up(self, job: Job) -> Lookup:
        """Return the record of a run, or why there is none."""
        if job.key not in self._found:
            path = self.output.record(*job.key)
            self._found[job.key] = record.look_up(path, wanted=job.hash, version=package_version())
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
        written = record.write(self.output.record(new.artifact, new.unit), new)
        self._found[new.artifact, new.unit] = Lookup(record=written)
