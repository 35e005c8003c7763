"""The ratios that are promised: each is measured within one run, in turns with what it is compared with."""

import importlib
import pathlib

from ._limits import LIMITS
from ._measure import Ratio
from ._outcome import Outcome

NAMES = sorted(path.stem.removeprefix("bench_") for path in pathlib.Path(__file__).parent.glob("bench_*.py"))

# The contraction, streaming, the compiled loop, ensembles in one loop, and stacks of the testbed.
PROMISED = ("heads", "streaming", "training", "ensemble", "testbed")


def judge(ratio: Ratio) -> Outcome:
    """Return the verdict on a ratio: it fails beyond its limit, or where it has none if it is not as asked."""
    side = "at most" if ratio.at_most else "at least"
    said = f"{ratio.name}: {ratio.measured:.3g} (asked: {side} {ratio.asked:g}"
    if ratio.name not in LIMITS:
        return Outcome(ratio.holds, f"{said})")
    limit = LIMITS[ratio.name].limit
    return Outcome(ratio._replace(asked=limit).holds, f"{said}, fails beyond {limit:g})")


def measure(name: str) -> list[Outcome]:
    """Measure the ratios of one benchmark."""
    return [judge(ratio) for ratio in importlib.import_module(f"benchmarks.bench_{name}").main()]
