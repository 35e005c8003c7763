"""Figure 9: the testbed's epinet, one hyperparameter at a time."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact
from ..configs.testbed import ABLATIONS, Ablation, Changes, variant_of
from ..stratified import mean_of
from ..style import AGENTS, MUTED
from ._testbed import TESTBED

ARTIFACT = Artifact(
    title="The epinet, one hyperparameter at a time",
    label="fig:testbed_ablation",
    session="testbed",
    tiers={
        "smoke": Ablation(rows=(("prior scale", (((("prior_scale", 0.0),)),)),), problems=(16, 17), num_batches=20),
        "laptop": Ablation(
            rows=tuple((name, row[-1:] if "hidden" in name else row[:1] + row[-1:]) for name, row in ABLATIONS),
            problems=(71, 72, 91, 92),
            num_batches=300,
        ),
        "paper": Ablation(),
    },
    **TESTBED,
    minutes={"smoke": 0.2, "laptop": 1.5, "paper": 90},
    data="Neural Testbed",
    caption="Dotted lines mark the tuned values.",
)

_METRICS = {"marginal": "marginal KL", "joint": "joint KL"}
_TUNED = {
    "index dimension": 8,
    "hidden layers": 2,
    "hidden width": 15,
    "prior scale": 0.3,
    "prior width": 5,
    "L2 decay": 0.2,
}


def _setting(row: str, changes: Changes) -> float:
    """Return the value of the swept hyperparameter."""
    value = dict(changes).popitem()[1]
    if row == "hidden layers":
        return len(value)
    return value[0] if isinstance(value, tuple) else value


def _draw_row(ax: Axes, rows: Sequence[Mapping[str, Any]], row: str, sweep: tuple[Changes, ...], metric: str) -> None:
    """Draw one factor: its values at equal distances, since some of them are zero."""
    known = {_TUNED[row]: variant_of("epinet").label}
    known |= {_setting(row, changes): variant_of("epinet", **dict(changes)).label for changes in sweep}
    present = {value: label for value, label in sorted(known.items()) if any(r["label"] == label for r in rows)}
    means, errors = zip(*(mean_of(rows, label, metric) for label in present.values()), strict=True)
    bars = [0.0 if math.isnan(error) else error for error in errors]
    positions = range(len(present))
    look = AGENTS["epinet"]
    ax.errorbar(positions, means, yerr=bars, capsize=2, markersize=4, **look.line(label=None))
    ax.axvline(list(present).index(_TUNED[row]), color=MUTED, linewidth=1.0, linestyle=":", zorder=1)
    ax.set_xticks(list(positions), [f"{value:g}" for value in present], fontsize=6)
    ax.tick_params(axis="y", labelsize=7)
    ax.set_xlabel(row, fontsize=8)
    ax.set_ylabel(_METRICS[metric], fontsize=8)
    low = min(mean - bar for mean, bar in zip(means, bars, strict=True))
    high = max(mean + bar for mean, bar in zip(means, bars, strict=True))
    ax.set_ylim(0 if low < 0.5 * high else 0.8 * low, 1.1 * high)


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the figure, two factors in a line; a dotted line marks the tuned value."""
    labels = {row["label"] for row in rows}
    shown = [
        (row, sweep) for row, sweep in ABLATIONS if any(variant_of("epinet", **dict(c)).label in labels for c in sweep)
    ]
    lines = (len(shown) + 1) // 2
    figure = Figure(figsize=(6.75, 1.65 * max(lines, 2)))
    grid = figure.add_gridspec(max(lines, 1), 4)
    for place, (row, sweep) in enumerate(shown):
        for column, metric in enumerate(_METRICS):
            ax = figure.add_subplot(grid[place // 2, 2 * (place % 2) + column])
            _draw_row(ax, rows, row, sweep, metric)
    return figure
