"""The accepted numbers: one CSV per artifact and tier, and a manifest of where they come from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ReproduceError
from .files import write_atomically

BEST_FIRST = ("paper", "replication", "laptop", "smoke")
"""Tiers by how much their numbers say of the paper's."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """Accepted numbers of an artifact.

    Attributes:
        tier: the tier they were computed at.
        path: their CSV.
        origin: what the manifest says of them: checksum, versions, machine, seconds.
    """

    tier: str
    path: Path
    origin: Mapping[str, Any]


def digest(path: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_manifest(reference: Path) -> dict[str, Any]:
    """Return the manifest, empty if there is none yet."""
    path = reference / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_manifest(reference: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, sorted by name."""
    content = json.dumps(dict(sorted(manifest.items())), indent=1) + "\n"
    write_atomically(reference / "manifest.json", content.encode())


def is_of(origin: Mapping[str, Any], fingerprint: str) -> bool:
    """Return whether numbers are those of these runs: made by their code, or confirmed by a later run of it.

    Args:
        origin: what the manifest says of the numbers.
        fingerprint: of the runs, as `results.fingerprint` returns it.
    """
    return fingerprint in (origin.get("fingerprint"), origin.get("confirmed", {}).get("fingerprint"))


def best_accepted(artifact: str, reference: Path) -> Accepted | None:
    """Return the numbers of an artifact at the best tier that has all of them; they must be those of the manifest.

    Args:
        artifact: id of the artifact.
        reference: folder of the accepted CSVs.
    """
    manifest = read_manifest(reference)
    for tier in BEST_FIRST:
        name = f"{tier}/{artifact}.csv"
        path = reference / name
        if path.is_file():
            origin = manifest.get(name, {})
            if origin.get("sha256") != digest(path):
                raise ReproduceError(f"The reference {name} is not the one in its manifest.")
            if origin.get("missing", 0):
                continue
            return Accepted(tier=tier, path=path, origin=origin)
    return None
