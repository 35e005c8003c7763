"""The content of the paper: one tree of artifacts, claims, costs and departures, made from the accepted numbers."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..accepted import BEST_FIRST, Accepted, best_accepted, digest
from ..aggregate import read_rows
from ..artifact import Artifact
from ..claims import Claim, Verdict, judge
from ..evidence import PARTS, is_ours, part_of
from ..record import Row
from ..registry import REGISTRY
from .facts import facts
from .originals import originals
from .origins import compute, expected_time, machine_rows, stood_before
from .words import measured, size, standing, tables

_KINDS = {"fig": "Figure", "tab": "Table", "thm": "Theorem"}
_KINDS_OF_CLAIMS = {"paper": False, "ours": True}
_MISSING = "no accepted number yet"
_VERDICTS = {verdict.name.lower(): verdict.value for verdict in Verdict} | {"missing": "missing"}
# What a sentence says of one claim with a verdict, and of several.
_TOLD = {
    "holds": ("holds", "hold"),
    "fails": ("does not hold", "do not hold"),
    "equal": ("is equal within its margin", "are equal within their margins"),
    "undecided": ("is undecided", "are undecided"),
    "missing": ("has no accepted numbers yet", "have no accepted numbers yet"),
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An artifact as the paper shows it: with its best accepted numbers, or none."""

    entry: Artifact
    accepted: Accepted | None
    rows: Sequence[Row]


def gather(reference: Path) -> list[Shown]:
    """Return all artifacts of the index with their best accepted numbers.

    Args:
        reference: folder of the accepted CSVs.
    """
    found = []
    for entry in REGISTRY.values():
        accepted = best_accepted(entry.id, reference)
        entry = entry.at(accepted.tier) if accepted else entry
        found.append(Shown(entry=entry, accepted=accepted, rows=read_rows(accepted.path) if accepted else ()))
    return found


def _name(artifact: str) -> str:
    """Return the name of an artifact in the paper; empty for one that it does not have."""
    found = re.fullmatch(r"(fig|tab|thm)0*(\d+)(?:_\w+)?", artifact)
    return f"{_KINDS[found[1]]} {found[2]}" if found else ""


def _claim(claim: Claim, shown: Shown, stood: Mapping[str, str]) -> dict[str, Any]:
    """Return a line of the ledger."""
    tier = shown.accepted.tier if shown.accepted else None
    said = {
        "id": claim.id,
        "artifact": shown.entry.id,
        "part": part_of(shown.entry, tier),
        "ours": is_ours(claim),
        "statement": claim.statement,
        "location": claim.location,
        "quantity": claim.quantity,
        "rule": claim.rule.words
        + (f" (± {claim.rule.tolerance:g})" if claim.rule.tolerance else "")
        + (f" (equal within {claim.rule.margin:g})" if claim.rule.margin else ""),
        "stood": stood.get(claim.id, "unknown"),
        "tier": tier,
    }
    if shown.accepted is None:
        return {**said, "measured": _MISSING, "verdict": "missing", "standing": "unknown", "size": _MISSING}
    line = judge(claim, shown.rows)
    return {
        **said,
        "measured": measured(*line.measurement),
        "verdict": line.verdict.name.lower(),
        "standing": standing(*line.measurement),
        "size": size(*line.measurement),
    }


def _counts(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return how many claims got each verdict, as text."""
    found = Counter(line["verdict"] for line in lines)
    told = {name: str(found[name]) for name in _VERDICTS}
    return told | {"all": str(found.total()), "judged": str(found.total() - found["missing"])}


def _parts(claims: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the counts of verdicts by part of the evidence, of the paper's claims and of ours."""
    found: dict[str, dict[str, Any]] = {}
    for name in PARTS:
        own = [line for line in claims if line["part"] == name]
        kinds = {kind: _counts(line for line in own if line["ours"] is ours) for kind, ours in _KINDS_OF_CLAIMS.items()}
        found[name] = {kind: {**counts, "tally": _tally(counts)} for kind, counts in kinds.items()}
    return found


def _tally(counts: Mapping[str, str]) -> str:
    """Return the counts of verdicts as a sentence has them."""
    told = [f"{counts[name]} {words[counts[name] != '1']}" for name, words in _TOLD.items() if counts[name] != "0"]
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _artifact(shown: Shown, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the paper's entry of one artifact."""
    entry = shown.entry
    tier = shown.accepted.tier if shown.accepted else None
    counts = _counts(lines)
    return {
        "id": entry.id,
        "name": _name(entry.id),
        "title": entry.title,
        "session": entry.session,
        "data": entry.data,
        "caption": entry.caption,
        "tier": tier,
        "figure": f"figures/{entry.id}.pdf" if tier else None,
        "claims": [claim.id for claim in entry.claims],
        "counts": counts,
        "tally": _tally(counts),
        "minutes": {tier: entry.time(tier) for tier in entry.tiers},
        "machine": entry.machine(tier) if tier else "",
    }


def content(
    chosen: Sequence[Shown], *, reference: Path, departures: Path, sources: Path, version: str
) -> dict[str, Any]:
    """Return everything that the paper's sources read.

    Args:
        chosen: the artifacts.
        reference: folder of the accepted CSVs.
        departures: page of Markdown with the tables of departures.
        sources: folder of the paper's sources, with the questions and the published numbers.
        version: version of the software.
    """
    stood = stood_before(reference)
    claims = {claim.id: _claim(claim, shown, stood) for shown in chosen for claim in shown.entry.claims}
    tiers = {shown.entry.id: shown.accepted.tier if shown.accepted else None for shown in chosen}
    at_tier = Counter(tiers.values())
    counts = _counts(claims.values())
    questions = tomllib.loads(sources.joinpath("questions.toml").read_text(encoding="utf-8"))["question"]
    return {
        "version": version,
        "digest": digest(reference / "manifest.json")[:12],
        "verdicts": _VERDICTS,
        "counts": counts,
        "tally": _tally(counts),
        "parts": _parts(list(claims.values())),
        "part_names": PARTS,
        "stood": dict(Counter(line["stood"] for line in claims.values())),
        "artifacts": {
            shown.entry.id: _artifact(shown, [claims[claim.id] for claim in shown.entry.claims]) for shown in chosen
        },
        "tiers": [{"name": tier, "artifacts": str(at_tier[tier])} for tier in BEST_FIRST if at_tier[tier]],
        "present": str(len(chosen) - at_tier[None]),
        "claims": claims,
        "questions": questions,
        "originals": originals(sources / "originals.toml", {s.entry.id: list(s.rows) for s in chosen if s.accepted}),
        "compute": compute(reference),
        "minutes": {tier: expected_time([shown.entry for shown in chosen], tier) for tier in ("smoke", "laptop")},
        "machines": machine_rows(reference),
        "facts": facts(tiers),
        "departures": list(tables(departures.read_text(encoding="utf-8"))),
    }
