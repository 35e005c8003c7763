"""The paper's Figure 10 with real CIFAR-10 and trained ResNets."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from ..over_bases import Rows, mean_of, shown, values_of
from ..style import add_legend
from ._images import METRICS
from ._replication import RECIPES, errorbar, look_of, study_figure

ARTIFACT = study_figure(
    title="Networks, ensembles and epinets on real CIFAR-10, against parameters",
    label="fig:cifar10_scaling",
    order=2,
    parts=("networks", "ensembles", "epinets"),
    minutes=15,
    caption=(
        "Here, and in the figures below, temperatures were chosen on held-out images, also for _released_ and"
        " _paper_, whose claims are about untuned ones."
    ),
)


def _panel(ax: Axes, rows: Rows, metric: str) -> None:
    """Draw one loss against parameters."""
    series = [("network", shown(rows, part="networks"), "depth", look_of("network"))]
    ensembles = shown(rows, part="ensembles")
    for number, depth in enumerate(sorted(values_of(ensembles, "depth"))):
        look = {**look_of("ensemble"), "label": f"ensemble of ResNet-{depth}", "alpha": 1 - 0.5 * number}
        series.append(("ensemble", [row for row in ensembles if row["depth"] == depth], "size", look))
    for recipe in RECIPES:
        series.append(("epinet", shown(rows, part="epinets", recipe=recipe), "depth", look_of(f"epinet {recipe}")))
    for _, own, by, look in series:
        groups = [[row for row in own if row[by] == value] for value in sorted(values_of(own, by))]
        errorbar(ax, [mean_of(group, "parameters")[0] for group in groups], groups, metric, **look)
    ax.set_xscale("log")
    # Labels between powers of ten would run into one another.
    ax.xaxis.set_minor_formatter(NullFormatter())


def draw(rows: Rows) -> Figure:
    """Draw error, marginal and joint loss against parameters, temperatures chosen on held-out images."""
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, 3)
    for ax, (metric, words) in zip(axes, METRICS.items(), strict=True):
        _panel(ax, rows, metric)
        ax.set_xlabel("parameters")
        ax.set_ylabel(words)
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[2], columns=4)
    return figure
