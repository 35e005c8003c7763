"""Fresh CSVs against the accepted ones, with a tolerance per metric."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .accepted import digest, read_manifest, write_manifest
from .aggregate import read_cells, read_rows
from .artifact import Artifact, Tolerance
from .claims import judge
from .errors import ReproduceError
from .paths import Output
from .record import Records
from .results import origin

_EXACT = Tolerance()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a fresh CSV compares with its reference.

    Attributes:
        artifact: id of the artifact.
        differences: one sentence per disagreement, the first few of them; empty if they agree.
        num_rows: number of rows.
        largest: the largest deviation of a number, as a fraction of what its tolerance allows.
        digits: how many significant digits all numbers share at least; None if they share all of them.
    """

    artifact: str
    differences: tuple[str, ...]
    num_rows: int = 0
    largest: float = 0.0
    digits: int | None = None

    @property
    def kind(self) -> str:
        """How well they agree: "digits", "tolerance" or "apart"."""
        return "apart" if self.differences else "tolerance" if self.largest else "digits"

    def told(self, *, same_machine: bool) -> str:
        """Return it in words.

        Args:
            same_machine: whether nothing is known to differ between the machines.
        """
        if self.differences:
            return f"{self.artifact}: does not agree\n  " + "\n  ".join(self.differences)
        if self.largest == 0:
            return f"{self.artifact}: {self.num_rows} rows agree to the last digit"
        why = ", although nothing is known to differ between the machines" if same_machine else ""
        shared = "" if self.digits is None else f"at least {self.digits} digits, "
        largest = f"{shared}largest deviation {self.largest:.2g} of what is allowed{why}"
        return f"{self.artifact}: {self.num_rows} rows agree within their tolerances ({largest})"


def deviation(fresh: str, accepted: str, tolerance: Tolerance | None) -> float:
    """Return the deviation of a cell as a fraction of what is allowed; infinite where it is not a number.

    Args:
        fresh: the new cell.
        accepted: the one of the reference.
        tolerance: what is allowed; nothing by default.
    """
    tolerance = tolerance or _EXACT
    if fresh == accepted:
        return 0.0
    try:
        difference = abs(float(fresh) - float(accepted))
        allowed = tolerance.absolute + tolerance.relative * abs(float(accepted))
    except ValueError:
        return math.inf
    if math.isnan(difference) or allowed == 0:
        return math.inf
    return difference / allowed


def shared_digits(fresh: str, accepted: str, tolerance: Tolerance | None) -> int | None:
    """Return how many significant digits two cells share; None if all, or if both are zero within the tolerance.

    Args:
        fresh: the new cell.
        accepted: the one of the reference.
        tolerance: what is allowed; its absolute part is what counts as zero.
    """
    if fresh == accepted:
        return None
    try:
        first, second = float(fresh), float(accepted)
    except ValueError:
        return 0
    size = max(abs(first), abs(second))
    if size <= (tolerance or _EXACT).absolute:
        return None
    share = abs(first - second) / size
    return max(0, math.floor(-math.log10(share))) if share > 0 else 0 if math.isnan(share) else None


def compare(
    artifact: str, fresh: Path, accepted: Path, tolerances: Mapping[str, Tolerance], *, most: int = 5
) -> Comparison:
    """Compare two CSVs cell by cell; a column without a tolerance must be equal as text.

    Args:
        artifact: id of the artifact.
        fresh: path of the new CSV.
        accepted: path of the reference.
        tolerances: tolerance of each metric that has one.
        most: how many differences to tell.
    """
    columns, rows = read_cells(fresh)
    known_columns, known_rows = read_cells(accepted)
    if set(columns) != set(known_columns):
        return Comparison(
            artifact=artifact, differences=(f"the columns are {columns}, the reference has {known_columns}",)
        )
    if len(rows) != len(known_rows):
        return Comparison(artifact=artifact, differences=(f"{len(rows)} rows, the reference has {len(known_rows)}",))
    # Columns stand in the order in which the first rows name them, which says nothing.
    rows = [[dict(zip(columns, row, strict=True))[name] for name in known_columns] for row in rows]
    differences = []
    digits: list[int | None] = []
    largest = 0.0
    for number, (row, known) in enumerate(zip(rows, known_rows, strict=True), start=1):
        for column, cell, expected in zip(known_columns, row, known, strict=True):
            share = deviation(cell, expected, tolerances.get(column))
            largest = max(largest, share)
            digits.append(shared_digits(cell, expected, tolerances.get(column)))
            if share > 1:
                differences.append(f"row {number}, {column}: {cell}, the reference has {expected}")
    told = differences[:most]
    if len(differences) > most:
        told.append(f"and {len(differences) - most} more")
    return Comparison(
        artifact=artifact,
        differences=tuple(told),
        num_rows=len(rows),
        largest=largest,
        digits=min((number for number in digits if number is not None), default=None),
    )


def verify(entry: Artifact, output: Output, reference: Path) -> Comparison:
    """Compare the CSV of an artifact with its reference, which must be the one in the manifest."""
    name = f"{output.tier}/{entry.id}.csv"
    accepted = reference / name
    if not accepted.exists():
        return Comparison(
            artifact=entry.id,
            differences=(f"there is no reference {name}; `--accept` makes the fresh CSV the reference",),
        )
    origin = read_manifest(reference).get(name, {})
    if origin.get("sha256") != digest(accepted):
        return Comparison(artifact=entry.id, differences=(f"the reference {name} is not the one in its manifest",))
    if origin.get("missing", 0):
        share = f"{origin['units']} of {origin['units'] + origin['missing']} units"
        return Comparison(artifact=entry.id, differences=(f"the reference {name} is partial: {share}",))
    return compare(entry.id, output.csv(entry.id), accepted, entry.tolerances)


def _same_verdicts(entry: Artifact, output: Output, reference: Path) -> tuple[int, int]:
    """Return how many claims have the verdict that the accepted numbers give them, and of how many."""
    accepted = reference / output.tier / f"{entry.id}.csv"
    if not accepted.exists():
        return 0, 0
    fresh, known = (read_rows(path) for path in (output.csv(entry.id), accepted))
    same = [judge(claim, fresh).verdict is judge(claim, known).verdict for claim in entry.claims]
    return sum(same), len(same)


def agreement(entry: Artifact, comparison: Comparison, output: Output, reference: Path) -> dict[str, Any]:
    """Return what is noted of an artifact on a machine: how its numbers compare, and how many verdicts are the same.

    Args:
        entry: the artifact.
        comparison: of its fresh numbers with the accepted ones.
        output: where the fresh numbers are.
        reference: folder of the accepted CSVs.
    """
    return {
        "agrees": comparison.kind,
        "digits": comparison.digits,
        "largest": float(f"{comparison.largest:.2g}") if math.isfinite(comparison.largest) else None,
        "verdicts": _same_verdicts(entry, output, reference),
    }


def confirm(entry: Artifact, records: Records, reference: Path, *, largest: float, date: str) -> Mapping[str, Any]:
    """Note in the manifest that the code of these records gives the accepted numbers; return what is noted.

    From then on `restore` takes the accepted numbers for what this code would compute.

    Args:
        entry: an artifact whose fresh numbers agree with the accepted ones.
        records: its records, all computed by one commit.
        reference: folder of the accepted CSVs.
        largest: the largest deviation, as a fraction of what its tolerance allows.
        date: the day.
    """
    found = records.of(entry)
    commits = {str(one.provenance.get("commit")) for one in found}
    if any(one.restored for one in found):
        raise ReproduceError(f"{entry.id} is not confirmed: some of its records are accepted numbers, restored.")
    if len(commits) > 1 or any(commit == "None" or commit.endswith("-dirty") for commit in commits):
        told = ", ".join(sorted(commits))
        raise ReproduceError(f"{entry.id} is not confirmed: its records must be of one commit without changes; {told}.")
    fresh = origin(entry, records)
    about = {name: fresh[name] for name in ("fingerprint", "commit", "instructions", "cpus", "versions", "seconds")}
    noted = {"date": date, "largest": float(f"{largest:.2g}"), **about}
    name = f"{records.output.tier}/{entry.id}.csv"
    manifest = read_manifest(reference)
    write_manifest(reference, {**manifest, name: {**manifest[name], "confirmed": noted}})
    return noted
