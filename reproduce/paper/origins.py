"""The origin of the accepted numbers: compute, confirming machines, and rules that were committed first."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..accepted import BEST_FIRST, read_manifest
from ..artifact import SESSIONS, Artifact
from ..machines import read_confirmed
from ..registry import CLAIMS, REGISTRY
from .words import duration, number

RULES = "rules.json"
"""Which rules were there before their numbers: written by `rule_history.py`, beside the accepted numbers."""


def stood_before(reference: Path) -> dict[str, str]:
    """Return for each claim whether its rule stood "before", "between", "with" or "after" its numbers.

    A rule that is not the recorded one any more was changed with its numbers known, and counts as "after".

    Args:
        reference: folder of the accepted CSVs.
    """
    path = reference / RULES
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {}
    for name, claim in CLAIMS.items():
        if name in recorded:
            found[name] = recorded[name]["stood"] if recorded[name]["rule"] == str(claim.rule) else "after"
    return found


def _seconds(origins: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return what some accepted numbers took."""
    seconds = sum(origin.get("seconds") or 0.0 for origin in origins)
    runs = sum(origin.get("units") or 0 for origin in origins)
    return {"time": duration(seconds) if origins else "", "runs": number(runs) if origins else ""}


def expected_time(artifacts: Sequence[Artifact], tier: str) -> str:
    """Return how long artifacts take at a tier, one after the other."""
    return f"some {duration(60 * sum(artifact.minutes_of_session(tier) for artifact in artifacts))}"


def compute(reference: Path) -> dict[str, Any]:
    """Return what all accepted numbers took, by session and tier, and in all.

    Runs that several artifacts share are counted for each of them, so that sums are upper bounds.

    Args:
        reference: folder of the accepted CSVs.
    """
    manifest = read_manifest(reference)
    by_place: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for name, origin in manifest.items():
        tier, artifact = name.removesuffix(".csv").split("/")
        if artifact in REGISTRY:
            by_place.setdefault((REGISTRY[artifact].session, tier), []).append(origin)
    rows = [
        {"session": session, "tiers": {tier: _seconds(by_place.get((session, tier), [])) for tier in BEST_FIRST}}
        for session in SESSIONS
    ]
    return {"sessions": rows, "all": _seconds([origin for own in by_place.values() for origin in own])}


def machine_rows(reference: Path) -> list[dict[str, str]]:
    """Return the machines and settings on which `verify` was recorded, with the results.

    Args:
        reference: folder of the accepted CSVs.
    """
    rows = []
    for one in read_confirmed(reference):
        sessions = {REGISTRY[name].session for name in one["artifacts"]}
        rows.append(
            {
                "machine": f"{one['instructions']}; {one['cpus']} processors, jax {one['jax']}",
                "setting": one["setting"],
                "numbers": f"{', '.join(own for own in SESSIONS if own in sessions)}; tier {one['tier']}",
                **_agreement(one["artifacts"]),
            }
        )
    return rows


def _agreement(artifacts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return how artifacts compared, as cells of a table."""
    by_result = {
        result: [name for name, own in artifacts.items() if own["agrees"] == result]
        for result in ("digits", "tolerance", "apart")
    }
    shared = [artifacts[name]["digits"] for name in by_result["tolerance"]]
    digits = min((number for number in shared if number is not None), default=None)
    within = number(len(shared))
    verdicts = [own["verdicts"] for own in artifacts.values()]
    return {
        "digits": number(len(by_result["digits"])),
        "tolerance": within if digits is None else f"{within}, to {digits} digits",
        "apart": ", ".join(by_result["apart"]) or "none",
        "verdicts": f"{sum(same for same, _ in verdicts)} of {sum(among for _, among in verdicts)}",
    }
