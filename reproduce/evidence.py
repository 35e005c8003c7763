"""Kinds of evidence, counted apart because a theorem says nothing about images."""

import re
from collections.abc import Mapping

from .artifact import Artifact
from .claims import Claim

PARTS: Mapping[str, str] = {
    "theory": "Theory",
    "testbed": "Neural Testbed",
    "images": "Real images",
    "small": "Small images in their place",
    "decisions": "Decisions",
}
"""The kinds of evidence, with their names."""

_OURS = re.compile(r"\bours\b|set here|beyond the paper|correction|public replication", re.IGNORECASE)


def is_ours(claim: Claim) -> bool:
    """Return whether we added a claim: the paper does not make it, or makes it otherwise."""
    return bool(_OURS.search(claim.location))


def part_of(artifact: Artifact, tier: str | None) -> str:
    """Return the kind of evidence that an artifact's numbers at a tier are."""
    if artifact.session not in ("imagenet", "cifar"):
        return artifact.session
    return "small" if tier in ("laptop", "smoke") and "instead of" in artifact.data else "images"
