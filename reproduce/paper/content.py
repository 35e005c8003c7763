"""What the paper says: one tree of artifacts, claims, scores, costs and departures, made from the accepted numbers."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..accepted import BEST_FIRST, Accepted, best_accepted, digest
from ..aggregate import read_rows
from ..artifact import Artifact
from ..artifacts import _images, _testbed
from ..claims import Claim, Verdict, judge
from ..record import Row
from ..registry import REGISTRY
from .facts import facts
from .words import duration, measured, number, tables

_NUM_SAMPLES = 1000
_KINDS = {"fig": "Figure", "tab": "Table", "thm": "Theorem"}
_MISSING = "no accepted number yet"
_VERDICTS = {verdict.name.lower(): verdict.value for verdict in Verdict} | {"missing": "missing"}
# What a sentence says of one claim with a verdict, and of several.
_TOLD = {
    "holds": ("holds", "hold"),
    "fails": ("does not hold", "do not hold"),
    "undecided": ("is undecided", "are undecided"),
    "missing": ("has no accepted numbers yet", "have no accepted numbers yet"),
}
_IMAGE_COLUMNS = {"agent", "size", "seed", "num_samples", "exact", "parameters", "error", "marginal", "joint"}
_TESTBED_COLUMNS = {"label", "agent", "problem", "input_dim", "parameters", "marginal", "joint"}


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
    """Return what the paper calls an artifact; empty for one that it does not have."""
    found = re.fullmatch(r"(fig|tab|thm)0*(\d+)(?:_\w+)?", artifact)
    return f"{_KINDS[found[1]]} {found[2]}" if found else ""


def _claim(claim: Claim, shown: Shown) -> dict[str, Any]:
    """Return a line of the ledger."""
    said = {
        "id": claim.id,
        "artifact": shown.entry.id,
        "statement": claim.statement,
        "location": claim.location,
        "quantity": claim.quantity,
        "rule": str(claim.rule),
    }
    if shown.accepted is None:
        return {**said, "tier": None, "measured": _MISSING, "verdict": "missing"}
    line = judge(claim, shown.rows)
    number_ = measured(line.measurement.value, line.measurement.standard_error)
    return {**said, "tier": shown.accepted.tier, "measured": number_, "verdict": line.verdict.name.lower()}


def _counts(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return how many claims got each verdict, as text."""
    found = Counter(line["verdict"] for line in lines)
    judged = len(lines) - found["missing"]
    return {name: str(found[name]) for name in _VERDICTS} | {"all": str(len(lines)), "judged": str(judged)}


def _tally(counts: Mapping[str, str]) -> str:
    """Return the counts of verdicts as a sentence has them."""
    told = [f"{counts[name]} {words[counts[name] != '1']}" for name, words in _TOLD.items() if counts[name] != "0"]
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def _image_scores(rows: Sequence[Row]) -> list[list[str]]:
    """Return the losses of each agent and size: means over seeds with their standard errors."""
    shown = _images.shown_at(rows, {})
    found = []
    for agent in dict.fromkeys(str(row["agent"]) for row in shown):
        for size in _images.sizes_of(shown, agent):
            own = {"agent": agent, "size": size}
            parameters, _ = _images.mean_of(shown, "parameters", **own)
            losses = [measured(*_images.mean_of(shown, name, **own)) for name in ("error", "marginal", "joint")]
            found.append([agent.replace("resnet", "base network"), str(size), number(parameters), *losses])
    return found


def _testbed_scores(rows: Sequence[Row]) -> list[list[str]]:
    """Return the divergences of each agent: means over its problems with their standard errors."""
    # Chains of other lengths on other problems are one agent.
    chains = [row["problem"] for row in rows if row["agent"] == "sgmcmc"]
    rows = _testbed.as_one(rows, "sgmcmc") if len(set(chains)) == len(chains) else rows
    found = []
    for agent in dict.fromkeys(str(row["agent"]) for row in rows):
        for label in _testbed.labels_of(rows, agent):
            costs = [math.log(float(row["parameters"])) for row in rows if row["label"] == label]
            parameters = math.exp(sum(costs) / len(costs))
            losses = [measured(*_testbed.mean_of(rows, label, name)) for name in ("marginal", "joint")]
            words = label.replace("-num_particles=", " of ").replace("-", ", ")
            found.append([words, number(round(parameters)), *losses])
    return found


def _scores(shown: Shown) -> dict[str, Any] | None:
    """Return the table of numbers behind a figure that compares agents; nothing for other artifacts."""
    columns = set(shown.rows[0]) if shown.rows else set()
    if columns >= _IMAGE_COLUMNS and not any("row" in row for row in shown.rows):
        header = ["agent", "size", "parameters", "error", "marginal log-loss", "joint log-loss"]
        return {"columns": header, "rows": _image_scores(shown.rows)}
    if columns >= _TESTBED_COLUMNS:
        header = ["agent", "parameters", "marginal divergence", "joint divergence"]
        return {"columns": header, "rows": _testbed_scores(shown.rows)}
    return None


def _widest(chosen: Sequence[Shown]) -> dict[str, dict[str, Any]]:
    """Return the tables of scores, but not those whose lines are all in another one of the same records."""
    folders = {shown.entry.id: shown.entry.folder for shown in chosen}
    tables = {shown.entry.id: scores for shown in chosen if (scores := _scores(shown))}
    lines = {name: {tuple(row) for row in scores["rows"]} for name, scores in tables.items()}
    found: dict[str, dict[str, Any]] = {}
    for name, scores in tables.items():
        others = [own for own in tables if own != name and folders[own] == folders[name]]
        if not any(lines[name] < lines[own] or (lines[name] == lines[own] and own in found) for own in others):
            found[name] = scores
    return found


def _told(origin: Mapping[str, Any], name: str, key: str = "") -> str:
    """Return an entry of the manifest as text; where the records of an artifact differ in it, it is a list."""
    found = origin.get(name, "unknown")
    values = found if isinstance(found, list) else [found]
    texts = [str(value.get(key, "unknown") if isinstance(value, dict) else value) for value in values]
    return ", ".join(dict.fromkeys(texts))


def _full(entry: Artifact) -> str:
    """Return what tier paper takes, and on what; empty for an artifact that does not have it."""
    if "paper" not in entry.tiers:
        return ""
    return f"{entry.time('paper')}, {entry.machine('paper')}" if entry.minutes["paper"] else "none of its own"


def _cost(shown: Shown) -> dict[str, str]:
    """Return what an artifact took, where, and with whom it shares its runs."""
    entry, accepted = shown.entry, shown.accepted
    others = [name for name, own in REGISTRY.items() if name != entry.id and own.folder == entry.folder]
    origin = accepted.origin if accepted else {}
    seconds = origin.get("seconds")
    return {
        "time": duration(seconds) if seconds is not None else "not recorded",
        "runs": number(origin["units"]) if "units" in origin else "not recorded",
        "machine": f"{_told(origin, 'device')}, {_told(origin, 'cpus')} cores",
        "jax": _told(origin, "versions", "jax"),
        "shared": ", ".join(others) if len(others) <= 2 else f"{others[0]} and {len(others) - 1} more",
        "full": _full(entry),
    }


def _artifact(shown: Shown, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the paper says of one artifact."""
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
        "cost": _cost(shown),
    }


def content(chosen: Sequence[Shown], *, reference: Path, departures: Path, version: str) -> dict[str, Any]:
    """Return everything that the paper's sources read.

    Args:
        chosen: the artifacts.
        reference: folder of the accepted CSVs.
        departures: page of Markdown with the tables of departures.
        version: version of the software.
    """
    claims = {claim.id: _claim(claim, shown) for shown in chosen for claim in shown.entry.claims}
    tiers = {shown.entry.id: shown.accepted.tier if shown.accepted else None for shown in chosen}
    at_tier = Counter(tiers.values())
    counts = _counts(list(claims.values()))
    # Claims about figures, tables and theorems of the paper, and about what it does not have.
    parts = {
        part: _counts([claims[claim.id] for s in chosen for claim in s.entry.claims if s.entry.in_paper is own])
        for part, own in (("paper", True), ("beyond", False))
    }
    return {
        "version": version,
        "digest": digest(reference / "manifest.json")[:12],
        "verdicts": _VERDICTS,
        "counts": counts,
        "tally": _tally(counts),
        "parts": {part: {**own, "tally": _tally(own)} for part, own in parts.items()},
        "artifacts": {
            shown.entry.id: _artifact(shown, [claims[claim.id] for claim in shown.entry.claims]) for shown in chosen
        },
        "tiers": [{"name": tier, "artifacts": str(at_tier[tier])} for tier in BEST_FIRST if at_tier[tier]],
        "present": str(len(chosen) - at_tier[None]),
        "claims": claims,
        "scores": _widest(chosen),
        "facts": facts(tiers),
        "departures": list(tables(departures.read_text(encoding="utf-8"))),
    }
