"""Fresh CSVs against the accepted ones, with a tolerance per metric."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ledger
from .accepted import best_accepted, digest, read_manifest
from .aggregate import read_cells, read_rows
from .artifact import Artifact, Tolerance
from .claims import judge
from .errors import ReproduceError
from .files import write_atomically
from .paths import Output
from .registry import REGISTRY

_EXACT = Tolerance()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a fresh CSV compares with its reference.

    Attributes:
        artifact: id of the artifact.
        differences: one sentence per disagreement, the first few of them; empty if they agree.
        num_rows: number of rows.
        largest: the largest deviation of a number, as a fraction of what its tolerance allows.
    """

    artifact: str
    differences: tuple[str, ...]
    num_rows: int = 0
    largest: float = 0.0


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
    if columns != known_columns:
        return Comparison(
            artifact=artifact, differences=(f"the columns are {columns}, the reference has {known_columns}",)
        )
    if len(rows) != len(known_rows):
        return Comparison(artifact=artifact, differences=(f"{len(rows)} rows, the reference has {len(known_rows)}",))
    differences = []
    largest = 0.0
    for number, (row, known) in enumerate(zip(rows, known_rows, strict=True), start=1):
        for column, cell, expected in zip(columns, row, known, strict=True):
            share = deviation(cell, expected, tolerances.get(column))
            largest = max(largest, share)
            if share > 1:
                differences.append(f"row {number}, {column}: {cell}, the reference has {expected}")
    told = differences[:most]
    if len(differences) > most:
        told.append(f"and {len(differences) - most} more")
    return Comparison(artifact=artifact, differences=tuple(told), num_rows=len(rows), largest=largest)


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


def same_verdicts(entry: Artifact, output: Output, reference: Path) -> tuple[int, int]:
    """Return how many claims have the verdict that the accepted numbers give them, and of how many."""
    accepted = reference / output.tier / f"{entry.id}.csv"
    if not accepted.exists():
        return 0, 0
    fresh, known = (read_rows(path) for path in (output.csv(entry.id), accepted))
    same = [judge(claim, fresh).verdict is judge(claim, known).verdict for claim in entry.claims]
    return sum(same), len(same)


def accepted_ledger(tier: str, reference: Path) -> str:
    """Return the ledger of a tier by its accepted numbers, without artifacts of which these are a part only.

    Args:
        tier: the tier.
        reference: folder of the accepted CSVs.
    """
    manifest = read_manifest(reference)
    lines = []
    for entry in REGISTRY.values():
        origin = manifest.get(f"{tier}/{entry.id}.csv", {"missing": 1})
        if not origin.get("missing", 0):
            rows = read_rows(reference / tier / f"{entry.id}.csv")
            lines += [judge(claim, rows) for claim in entry.at(tier).claims]
    return ledger.as_markdown(lines, tier=tier)


def best_ledger(reference: Path) -> str:
    """Return the ledger of all claims, each judged by the best accepted numbers of its artifact."""
    lines = []
    for artifact in REGISTRY.values():
        accepted = best_accepted(artifact.id, reference)
        if accepted is not None:
            evidence = artifact.note(accepted.tier) or f"tier {accepted.tier}"
            evidence = evidence if evidence.startswith("tier") else f"tier {accepted.tier} · {evidence}"
            rows = read_rows(accepted.path)
            lines += [(judge(claim, rows), evidence) for claim in artifact.at(accepted.tier).claims]
    return ledger.best_as_markdown(lines)


def write_accepted_ledger(tier: str, reference: Path) -> Path:
    """Write the ledger of a tier by its accepted numbers and that of the best ones; return where the first is."""
    write_atomically(reference / "claims.md", best_ledger(reference).encode())
    path = reference / tier / "claims.md"
    write_atomically(path, accepted_ledger(tier, reference).encode())
    return path


def accept(chosen: Sequence[Artifact], output: Output, reference: Path, provenances: Mapping[str, Any]) -> None:
    """Make fresh CSVs the reference, with their figures and ledger, and write where they come from into the manifest.

    Args:
        chosen: the artifacts.
        output: where the fresh CSVs are.
        reference: folder of the accepted ones.
        provenances: for each artifact, what its records say about the program and the machine.
    """
    manifest = read_manifest(reference)
    for entry in chosen:
        fresh = output.csv(entry.id)
        if not fresh.exists():
            raise ReproduceError(f"{fresh} does not exist; `python -m reproduce run --only {entry.id}` makes it.")
        name = f"{output.tier}/{entry.id}.csv"
        write_atomically(reference / name, fresh.read_bytes())
        picture = output.figure(entry.id, "png")
        # At tier smoke there is nothing to see.
        if picture.exists() and output.tier != "smoke":
            write_atomically(reference / output.tier / "figures" / picture.name, picture.read_bytes())
        manifest[name] = {"sha256": digest(reference / name), **provenances[entry.id]}
    content = json.dumps(dict(sorted(manifest.items())), indent=1) + "\n"
    write_atomically(reference / "manifest.json", content.encode())
    write_accepted_ledger(output.tier, reference)
