"""The cold epinet, one factor at a time."""

from matplotlib.figure import Figure

from ..stats import Rows
from ..style import AGENTS, MUTED
from ._replication import LOSSES, points, shown, study_figure

ARTIFACT = study_figure(
    title="The cold epinet, one factor at a time",
    order=6,
    parts=("ablation",),
    minutes=15,
    tolerances=LOSSES,
    caption="The dotted line is _cold_; every other line changes one factor of it.",
)


def draw(rows: Rows) -> Figure:
    """Draw joint and marginal loss of every variant, at the temperature that suits each; a line marks the recipe."""
    own = shown(rows, part="ablation")
    groups = {
        (factor, value): [row for row in own if row["factor"] == factor and str(row["value"]) == value]
        for factor, value in dict.fromkeys((row["factor"], str(row["value"])) for row in own)
    }
    words = {"True": "yes", "False": "no"}
    names = [
        value if factor == "none" else f"{factor.replace('_', ' ')}: {words.get(value, value)}"
        for factor, value in groups
    ]
    figure = Figure(figsize=(6.75, 0.2 * len(groups) + 0.9))
    axes = figure.subplots(1, 2, sharey=True)
    places = list(range(len(groups)))[::-1]
    look = AGENTS["epinet"].line(linestyle="", label=None)
    for ax, (metric, words) in zip(
        axes, {"joint": "joint log-loss, $\\tau = 10$", "marginal": "marginal log-loss"}.items(), strict=True
    ):
        means, errors = points(list(groups.values()), metric)
        ax.errorbar(means, places, xerr=errors, capsize=2, markersize=4, **look)
        ax.axvline(means[0], color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
        ax.set_xlabel(words)
    axes[0].set_yticks(places, names, fontsize=7)
    return figure
