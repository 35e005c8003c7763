"""Published numbers beside ours: `paper/originals.toml` quotes them and names the accepted number of each."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..claims import judge
from ..record import Row
from ..registry import CLAIMS, JUDGED_BY
from ..stats import BASES, PROBLEMS, SEEDS, Design, Extreme, Measurement, Rows, where
from .words import measured

_DESIGNS: Mapping[str, Design] = {"problems": PROBLEMS, "seeds": SEEDS, "bases": BASES}


def _rows(rows: Rows, wanted: Mapping[str, Any]) -> Rows:
    """Return the rows that are wanted; "smallest" and "largest" are extremes of a column."""
    extremes = {one.value: one for one in Extreme}
    chosen: dict[str, Any] = {name: extremes.get(value, value) for name, value in wanted.items()}
    return where(rows, **chosen)


def _ours(ours: Mapping[str, Any], rows: Mapping[str, list[Row]]) -> Measurement:
    """Return our number from the accepted rows of all artifacts."""
    own = rows[artifact_of(ours)]
    if "claim" in ours:
        return judge(CLAIMS[ours["claim"]], own).measurement
    design, metric, chosen = _DESIGNS[ours["means"]], ours["metric"], _rows(own, ours["rows"])
    if "over" in ours:
        others = rows[ours.get("over_artifact", ours["artifact"])]
        return design.ratio(chosen, _rows(others, ours["over"]), metric)
    value, error = design.mean(chosen, metric)
    return Measurement(value / ours.get("per", 1), error / ours.get("per", 1))


def artifact_of(ours: Mapping[str, Any]) -> str:
    """Return the id of the artifact that has our number."""
    return JUDGED_BY[ours["claim"]].id if "claim" in ours else ours["artifact"]


def originals(path: Path, rows: Mapping[str, list[Row]]) -> list[dict[str, str]]:
    """Return the published numbers with ours; those of artifacts without accepted numbers are left out.

    Args:
        path: the file that quotes them.
        rows: accepted rows by artifact.
    """
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["number"]:
        needed = {artifact_of(entry["ours"]), entry["ours"].get("over_artifact", artifact_of(entry["ours"]))}
        if all(rows.get(artifact) for artifact in needed):
            words = {name: entry[name] for name in ("what", "theirs", "setting", "source")}
            found.append({**words, "ours": measured(*_ours(entry["ours"], rows))})
    return found
