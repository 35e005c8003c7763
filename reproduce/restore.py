"""Records from accepted numbers, so that these can be drawn, and a long run goes on where another machine left it."""

from itertools import groupby
from pathlib import Path

from .accepted import digest, is_of, read_manifest
from .aggregate import read_rows
from .artifact import Artifact
from .errors import ReproduceError
from .record import Records
from .results import fingerprint


def restore(entry: Artifact, records: Records, reference: Path) -> int:
    """Write the records of an artifact that its accepted CSV holds and that are missing; return how many these are.

    Args:
        entry: the artifact.
        records: the records there are; those of accepted numbers are added.
        reference: folder of the accepted CSVs.
    """
    tier = records.output.tier
    name = f"{tier}/{entry.id}.csv"
    path, origin = reference / name, read_manifest(reference).get(name, {})
    if not path.exists():
        raise ReproduceError(f"{entry.id} must have accepted numbers at tier {tier}; there is no {path}.")
    if origin.get("sha256") != digest(path):
        raise ReproduceError(f"{path} must be what its manifest says; its checksum is another one.")
    # The rows of a unit stand together, and its name is the column that no row has of its own.
    by_unit = {
        unit: [{column: value for column, value in row.items() if column != "unit"} for row in rows]
        for unit, rows in groupby(read_rows(path), key=lambda row: str(row["unit"]))
    }
    work = [job for job in records.jobs(entry) if job.unit in by_unit]
    if not is_of(origin, fingerprint(work)):
        raise ReproduceError(
            f"The accepted numbers of {entry.id} are not known to be of this configuration, experiment and version; "
            f"`python -m reproduce verify --tier {tier} --only {entry.id} --confirm` notes a run that agrees with them."
        )
    missing = [job for job in work if records.look_up(job).record is None]
    ours = ("sha256", "fingerprint", "confirmed", "units", "missing")
    about = {key: value for key, value in origin.items() if key not in ours}
    about["seconds"] = round(about["seconds"] / len(by_unit), 3)
    for job in missing:
        records.add(job.record(by_unit[job.unit], about, restored=True))
    return len(missing)
