"""Fresh numbers become the accepted ones, with their figures, and the ledgers are judged by them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import ledger
from .accepted import best_accepted, digest, read_manifest, write_manifest
from .aggregate import read_rows
from .artifact import Artifact
from .claims import judge
from .errors import ReproduceError
from .files import write_atomically
from .paths import Output
from .registry import REGISTRY


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
    write_manifest(reference, manifest)
    write_accepted_ledger(output.tier, reference)
