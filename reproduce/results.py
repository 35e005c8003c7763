"""From the records of complete artifacts to numbers, figures and verdicts."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import ledger
from .aggregate import read_rows
from .artifact import Artifact
from .claims import LedgerLine, judge
from .errors import ReproduceError
from .files import write_atomically
from .paths import Output
from .record import Job, Records, Row, write_csv
from .registry import select
from .style import pictures, style_context

_CODE = Path(__file__).parent


def collect(artifact: Artifact, records: Records, *, partial: bool = False) -> None:
    """Write the CSV of an artifact from its records, all of which must be there unless it may be `partial`."""
    found, total, output = records.of(artifact), len(records.jobs(artifact)), records.output
    if not found or (len(found) < total and not partial):
        words = "".join(f" {option}" for option in output.variant.options)
        raise ReproduceError(
            f"{artifact.id} has {len(found)} of its {total} units at tier {output.tier}{words} in {output.root}; "
            f"`python -m reproduce run --tier {output.tier} --only {artifact.id} --out {output.root}{words}` computes "
            "the rest."
        )
    write_csv(output.csv(artifact.id), found)


def complete(records: Records) -> list[Artifact]:
    """Return the artifacts that have all their records at a tier, and see to it that their CSVs are of these."""
    chosen = select(tier=records.output.tier, variant=records.output.variant)
    found = [artifact for artifact in chosen if records.is_complete(artifact)]
    for artifact in found:
        collect(artifact, records)
    return found


def fingerprint(work: Sequence[Job]) -> str:
    """Return a checksum of runs by their names and hashes: equal for the same configurations and experiments."""
    lines = sorted(f"{job.unit} {job.hash}" for job in work)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def origin(artifact: Artifact, records: Records) -> dict[str, Any]:
    """Return where the numbers of an artifact come from: the provenance of its records, their time added up.

    A long run may have been continued by another commit: what differs between records is then a list of its values.
    """
    done = [job for job in records.jobs(artifact) if records.look_up(job).record is not None]
    found = records.of(artifact)
    merged: dict[str, Any] = {}
    for name in found[0].provenance:
        values = [one.provenance.get(name) for one in found]
        # What was restored from accepted numbers of several commits has a list already.
        flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
        different = list({json.dumps(value): value for value in flat}.values())
        merged[name] = different[0] if len(different) == 1 else different
    merged["seconds"] = round(sum(one.provenance["seconds"] for one in found), 1)
    merged["units"] = len(found)
    merged["missing"] = len(records.jobs(artifact)) - len(found)
    merged["fingerprint"] = fingerprint(done)
    return merged


def _drawn(artifact: Artifact, output: Output, csv: Path, *kinds: str) -> list[bytes]:
    """Return the pictures of numbers of an artifact, one of each kind."""
    rows = read_rows(csv)
    with style_context():
        options = {"config": artifact.at_tier(output.tier, output.variant)} if artifact.draws_config else {}
        figure = artifact.draw(rows, **options)
        return pictures(figure, *kinds, note=artifact.note(output.tier, output.variant))


def _is_drawn(artifact: Artifact, output: Output, *kinds: str) -> bool:
    """Return whether the figures are newer than the numbers and than the code, as `make` would ask."""
    sources = [output.csv(artifact.id), *_CODE.glob("*.py"), *_CODE.glob("artifacts/*.py"), *_CODE.glob("style/*.py")]
    newest = max(path.stat().st_mtime_ns for path in sources)
    figures = [output.figure(artifact.id, kind) for kind in kinds]
    return all(path.exists() and path.stat().st_mtime_ns >= newest for path in figures)


def draw(artifact: Artifact, output: Output, *, again: bool = True) -> None:
    """Draw an artifact from its CSV, as PDF and PNG.

    Args:
        artifact: the artifact.
        output: where its CSV is.
        again: whether to draw what is newer than its numbers and the code, too.
    """
    kinds = ("pdf", "png")
    if again or not _is_drawn(artifact, output, *kinds):
        for kind, content in zip(kinds, _drawn(artifact, output, output.csv(artifact.id), *kinds), strict=True):
            write_atomically(output.figure(artifact.id, kind), content)


def draw_accepted(artifact: Artifact, output: Output, reference: Path) -> Path | None:
    """Draw the accepted numbers of an artifact again, as after a change of its drawing; nothing if it has no picture.

    Args:
        artifact: the artifact.
        output: its tier.
        reference: folder of the accepted numbers.
    """
    picture = reference / output.tier / "figures" / f"{artifact.id}.png"
    if not picture.exists():
        return None
    (content,) = _drawn(artifact, output, reference / output.tier / f"{artifact.id}.csv", "png")
    write_atomically(picture, content)
    return picture


def judged(artifact: Artifact, rows: Sequence[Row]) -> list[LedgerLine]:
    """Judge the claims of an artifact from its rows."""
    return [judge(claim, rows) for claim in artifact.claims]


def settle(chosen: Sequence[Artifact], output: Output) -> list[LedgerLine]:
    """Judge the claims of artifacts from their CSVs."""
    return [line for artifact in chosen for line in judged(artifact, read_rows(output.csv(artifact.id)))]


def write_ledger(lines: Sequence[LedgerLine], output: Output) -> None:
    """Write the ledger as Markdown and CSV."""
    write_atomically(output.claims("md"), ledger.as_markdown(lines, tier=output.tier).encode())
    write_atomically(output.claims("csv"), ledger.as_csv(lines).encode())
