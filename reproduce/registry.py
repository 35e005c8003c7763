"""All artifacts: one for each file of `artifacts/`. Experiments are named there, not imported: listing needs no JAX."""

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .artifact import SESSIONS, Artifact
from .claims import Claim
from .configs.image_paper import DEFAULT, Variant
from .errors import UsageError, unknown

_FOLDER = Path(__file__).with_name("artifacts")


def _named(declared: Artifact, name: str, draw: Callable[..., Any]) -> Artifact:
    """Return an artifact with its id, its drawing, and places of its claims."""
    claims = tuple(replace(claim, location=claim.location or declared.place) for claim in declared.claims)
    return replace(declared, id=name, draw=draw, claims=claims)


def _load(name: str) -> Artifact:
    """Return the artifact that a file declares."""
    module = importlib.import_module(f".artifacts.{name}", __package__)
    found = _named(module.ARTIFACT, name, module.draw)
    if found.from_scratch is None:
        return found
    return replace(found, from_scratch=_named(found.from_scratch, name, found.from_scratch.draw))


def _place(artifact: Artifact) -> tuple[int, int, list[str | int]]:
    """Return the place in the list: by session, by the order within it, by id with numbers in their order."""
    parts = re.split(r"(\d+)", artifact.id)
    words = [int(part) if part.isdigit() else part for part in parts]
    return SESSIONS.index(artifact.session), artifact.order, words


def _all() -> dict[str, Artifact]:
    """Return all artifacts by id; files whose names begin with an underscore hold what several share."""
    names = [path.stem for path in _FOLDER.glob("[!_]*.py")]
    return {artifact.id: artifact for artifact in sorted(map(_load, names), key=_place)}


REGISTRY: dict[str, Artifact] = _all()
"""Every artifact by its id."""

CLAIMS: dict[str, Claim] = {claim.id: claim for artifact in REGISTRY.values() for claim in artifact.claims}
"""Every claim by its id."""

JUDGED_BY: dict[str, Artifact] = {claim.id: artifact for artifact in REGISTRY.values() for claim in artifact.claims}
"""The artifact whose numbers decide a claim, by the claim's id."""


def select(
    only: Sequence[str] = (), session: str | None = None, *, tier: str, variant: Variant = DEFAULT
) -> list[Artifact]:
    """Return the artifacts with these ids and of this session that have this tier, as they are computed at it."""
    for name in only:
        if name not in REGISTRY:
            raise unknown("--only", name, REGISTRY)
        if tier not in REGISTRY[name].tiers:
            raise UsageError(f"`--tier` must be {' or '.join(REGISTRY[name].tiers)} for {name}; got {tier}.")
    sessions = sorted({artifact.session for artifact in REGISTRY.values()})
    if session is not None and session not in sessions:
        raise unknown("--session", session, sessions)
    chosen = [own for own in REGISTRY.values() if session in (None, own.session) and tier in own.tiers]
    if not chosen:
        raise UsageError(f"`--tier` must be one that the session {session} has; got {tier}.")
    return [artifact.at(tier, variant) for artifact in chosen if not only or artifact.id in only]
