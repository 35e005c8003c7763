"""Figure 9: the testbed's epinet, one hyperparameter at a time."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, Difference, RelativeChange, at_least, at_most, equals, select
from ..configs.testbed import ABLATIONS, Ablation, Changes, variant_of
from ..stats import PROBLEMS, Rows
from ..style import AGENTS, MUTED
from ._testbed import TESTBED, epinet, mean_of


def _farthest(name: str, values: Sequence[Any]) -> RelativeChange:
    """Compare each of these values of a hyperparameter with the tuned one."""
    labels = {variant_of("epinet", **{name: value}).label for value in values}
    return RelativeChange("joint", select(label=lambda label: label in labels), epinet(), PROBLEMS, each="label")


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
    place="Appendix F.4",
    claims=(
        Claim(
            "fig09-index-joint",
            "A larger index dimension improves joint predictions.",
            "joint KL, 32 - 1",
            Difference("joint", epinet(index_dim=32), epinet(index_dim=1), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig09-index-marginal",
            "A larger index dimension improves marginal predictions.",
            "marginal KL, 32 - 1",
            Difference("marginal", epinet(index_dim=32), epinet(index_dim=1), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig09-layers",
            "The number of hidden layers does not matter much.",
            "largest relative difference in joint KL from two layers",
            _farthest("epinet_hidden", [(15,) * layers for layers in (1, 3, 4)]),
            at_most(0.15),
        ),
        Claim(
            "fig09-width",
            "The width does not matter much once it is large enough.",
            "largest relative difference in joint KL from width 15, of widths 50 and 100",
            _farthest("epinet_hidden", [(width,) * 2 for width in (50, 100)]),
            at_most(0.15),
        ),
        Claim(
            "fig09-prior-marginal",
            "A smaller prior scale predicts marginals better.",
            "marginal KL, factor 0 - factor 3",
            Difference("marginal", epinet(prior_scale=0.0), epinet(prior_scale=3.0), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig09-prior-none",
            "Too small a prior scale degrades joint predictions.",
            "joint KL, factor 0 - tuned",
            Difference("joint", epinet(prior_scale=0.0), epinet(), PROBLEMS),
            at_least(0),
        ),
        Claim(
            "fig09-prior-large",
            "Too large a prior scale degrades joint predictions.",
            "joint KL, factor 3 - tuned",
            Difference("joint", epinet(prior_scale=3.0), epinet(), PROBLEMS),
            at_least(0),
        ),
        Claim(
            "fig09-prior-width",
            "Wider prior networks improve joint predictions.",
            "joint KL, width 50 - width 1",
            Difference("joint", epinet(prior_hidden=(50, 50)), epinet(prior_hidden=(1, 1)), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig09-prior-width-marginal",
            "Beyond a point, wider prior networks improve little.",
            "relative difference in joint KL, width 50 - width 10",
            RelativeChange("joint", epinet(prior_hidden=(50, 50)), epinet(prior_hidden=(10, 10)), PROBLEMS),
            equals(0, tolerance=0.15),
        ),
        Claim(
            "fig09-decay-small",
            "Too small an L2 decay degrades joint predictions.",
            "joint KL, factor 0.002 - tuned",
            Difference("joint", epinet(decay=0.002), epinet(), PROBLEMS),
            at_least(0),
        ),
        Claim(
            "fig09-decay-large",
            "Too large an L2 decay degrades joint predictions.",
            "joint KL, factor 20 - tuned",
            Difference("joint", epinet(decay=20.0), epinet(), PROBLEMS),
            at_least(0),
        ),
    ),
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


def _draw_row(ax: Axes, rows: Rows, row: str, sweep: tuple[Changes, ...], metric: str) -> None:
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


def draw(rows: Rows) -> Figure:
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
