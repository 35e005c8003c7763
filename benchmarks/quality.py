"""The quality gate: miniatures with pinned seeds against their committed results."""

import json
import math
import pathlib
from typing import Any

from ._miniatures import digit_losses, testbed_divergences
from ._outcome import Outcome, table

PATH = pathlib.Path(__file__).parent / "baselines" / "quality.json"

# Results agree to 1e-4 between versions of jax and numbers of cores; another kind of CPU rounds in its own way.
TOLERANCE = 0.02

# The first must be below the second.
ORDERS = (
    ("digits: epinet, joint loss", "digits: ensemble, joint loss"),
    ("testbed: epinet, joint KL", "testbed: ensemble, joint KL"),
    ("testbed: epinet, joint KL", "testbed: mlp, joint KL"),
)

_HOW_TO_UPDATE = "run `nox -s bench -- quality --update` and commit the file."

Baseline = dict[str, dict[str, float]]


def measure() -> dict[str, float]:
    """Return the results of all miniatures; smaller is better for each of them."""
    return testbed_divergences() | digit_losses()


def compare(baseline: Baseline, found: dict[str, float]) -> Outcome:
    """Return the verdict on these results: each within its tolerance, either way, and in the declared order."""
    if missing := sorted(set(found) - set(baseline)):
        return Outcome(False, f"quality: no result is committed for {', '.join(missing)}; {_HOW_TO_UPDATE}")
    rows = []
    for name, value in found.items():
        before, tolerance = baseline[name]["value"], baseline[name]["tolerance"]
        change = value / before - 1
        # Also false for what is not a number.
        if not abs(change) <= tolerance:
            change_text = f"{100 * change:+.1f} %" if math.isfinite(change) else "not finite"
            rows.append((name, f"{before:.4g}", f"{value:.4g}", change_text, f"{100 * tolerance:g} %"))
    broken = [(a, b) for a, b in ORDERS if a in found and b in found and not found[a] < found[b]]
    if not rows and not broken:
        return Outcome(True, f"quality: {len(found)} results as in {PATH.name}, and in order")
    parts = [f"quality: not as in {PATH.name}"]
    if rows:
        parts[0] += f"; if it is meant, say so under *Numerics* in the changelog, {_HOW_TO_UPDATE}"
        parts.append(table(("smaller is better", "before", "after", "change", "allowed"), rows))
    parts += [f"{a} must be below {b}; got {found[a]:.4g} and {found[b]:.4g}." for a, b in broken]
    return Outcome(False, "\n".join(parts))


def _read(path: pathlib.Path) -> Baseline:
    """Return the committed results."""
    return json.loads(path.read_text()) if path.exists() else {}


def _write(path: pathlib.Path, found: dict[str, float]) -> None:
    """Write results; declared tolerances stay."""
    old = _read(path)
    content: dict[str, Any] = {
        name: {"value": float(f"{value:.6g}"), "tolerance": old.get(name, {}).get("tolerance", TOLERANCE)}
        for name, value in found.items()
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def main(*, update: bool = False, path: pathlib.Path = PATH) -> Outcome:
    """Compare the miniatures with the committed results, or commit theirs; an order that is broken fails anyway."""
    found = measure()
    if update:
        _write(path, found)
    return compare(_read(path), found)
