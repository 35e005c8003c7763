"""The cost gate: counts of every program against those that are committed for this version of jax and this platform."""

import importlib.metadata
import json
import pathlib
from typing import Any

import jax

from ._counts import count_entry_point, count_program
from ._outcome import Outcome, table
from .programs import ENTRY_POINTS, PROGRAMS

FOLDER = pathlib.Path(__file__).parent / "baselines"
TOLERANCE = 0.01

# What decides how a program is compiled.
_PACKAGES = ("jax", "equinox", "optax")
_HOW_TO_UPDATE = "run `nox -s bench -- cost --update` and commit the file."

Counts = dict[str, dict[str, float]]


def versions() -> dict[str, str]:
    """Return the versions of the packages that the counts depend on."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def baseline_path(folder: pathlib.Path = FOLDER) -> pathlib.Path:
    """Return the file of this version of jax and this platform."""
    return folder / f"jax-{versions()['jax']}-{jax.default_backend()}.json"


def measure() -> Counts:
    """Return the counts of all programs."""
    counts = {name: count_program(make) for name, make in PROGRAMS.items()}
    return counts | {name: count_entry_point(make) for name, make in ENTRY_POINTS.items()}


def _growth(before: float, after: float) -> float:
    """Return by which share a count grew; infinitely from nothing."""
    if after == before:
        return 0.0
    return after / before - 1 if before else float("inf")


def compare(before: Counts, after: Counts, *, label: str) -> Outcome:
    """Return the verdict: nothing grows by more than a hundredth, and every program has a baseline."""
    if unknown := sorted(set(before) ^ set(after)):
        return Outcome(False, f"cost: {label} and the programs differ in {', '.join(unknown)}; {_HOW_TO_UPDATE}")
    rows, grown = [], False
    for name, counts in after.items():
        for metric, value in counts.items():
            old = before[name].get(metric, 0.0)
            growth = _growth(old, value)
            if abs(growth) > TOLERANCE:
                rows.append((f"{name}, {metric}", f"{old:,.0f}", f"{value:,.0f}", f"{100 * growth:+.1f} %"))
                grown = grown or growth > 0
    listed = "\n" + table(("count", "before", "after", "growth"), rows) if rows else ""
    if grown:
        return Outcome(False, f"cost: more than {label} allows; if it is meant, {_HOW_TO_UPDATE}{listed}")
    if rows:
        return Outcome(True, f"cost: less than in {label}; to keep it so, {_HOW_TO_UPDATE}{listed}")
    return Outcome(True, f"cost: {len(after)} programs as in {label}")


def _without_baseline(path: pathlib.Path) -> Outcome:
    """Return the verdict where there is nothing to compare with.

    An unrecorded version of jax is a failure: someone moved it, and the baseline must move along. A platform without a
    record for any version is not watched and is skipped.
    """
    if not any(path.parent.glob(f"jax-*-{jax.default_backend()}.json")):
        return Outcome(True, f"cost: not checked, since no version of jax has a baseline on {jax.default_backend()}")
    return Outcome(False, f"cost: there is no {path.name}. On a commit that is known to be good, {_HOW_TO_UPDATE}")


def _write(path: pathlib.Path, counts: Counts) -> None:
    """Write a baseline."""
    content: dict[str, Any] = {"versions": versions(), "programs": counts}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def main(*, update: bool = False, folder: pathlib.Path = FOLDER) -> Outcome:
    """Compare all programs with the baseline, or make it from them."""
    path = baseline_path(folder)
    if update:
        _write(path, measure())
        return Outcome(True, f"cost: wrote {path.name}")
    if not path.exists():
        return _without_baseline(path)
    baseline = json.loads(path.read_text())
    moved = [f"{name} {version}" for name, version in baseline["versions"].items() if versions()[name] != version]
    label = path.name + (f" (made with {', '.join(moved)})" if moved else "")
    return compare(baseline["programs"], measure(), label=label)
