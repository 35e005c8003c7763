"""Figure 5: marginal and joint divergence of the testbed's agents, against parameters and against compute."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator

from ..artifact import Artifact
from ..configs.testbed import BALANCED, FEW, Scaling, scaling_variants
from ..stratified import as_one, labels_of, mean_of
from ..style import AGENTS, set_log_scale
from ._testbed import TESTBED

ARTIFACT = Artifact(
    title="Marginal and joint divergence of eight agents against their cost",
    label="fig:testbed_scaling_methods",
    session="testbed",
    tiers={
        "smoke": Scaling(variants=FEW, problems=(16, 17), num_batches=20),
        "laptop": Scaling(
            variants=scaling_variants((3, 10), chain=20_000), long_chain=20_000, problems=BALANCED, num_batches=300
        ),
        "paper": Scaling(),
    },
    **TESTBED,
    minutes={"smoke": 0.4, "laptop": 6, "paper": 390},
    data="Neural Testbed",
    caption=(
        "Divergences are means over problems, costs geometric means; axes are logarithmic. An ensemble is a "
        "curve over its number of particles: where it begins at one, `mlp` lies under that point. The dashed "
        "line is `sgmcmc`, whose cost depends on the problem."
    ),
)

_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_COSTS = {"parameters": "parameters", "flops": "training compute (counted FLOPs)"}
_ORDER = ("mlp", "dropout", "bbb", "hypermodel", "epinet", "ensemble", "ensemble+")


def _cost(rows: Sequence[Mapping[str, Any]], label: str, cost: str) -> float:
    """Return the geometric mean of a cost over problems, whose sizes span decades."""
    values = [math.log(row[cost]) for row in rows if row["label"] == label]
    return math.exp(sum(values) / len(values))


def _draw_panel(ax: Axes, rows: Sequence[Mapping[str, Any]], metric: str, cost: str) -> None:
    """Draw all agents; an ensemble is one curve over its size."""
    present = [agent for agent in _ORDER if labels_of(rows, agent)]
    for agent in present:
        points = []
        for label in labels_of(rows, agent):
            mean, error = mean_of(rows, label, metric)
            points.append((_cost(rows, label, cost), mean, error))
        points.sort()
        xs, means, errors = zip(*points, strict=True)
        bars = [0.0 if math.isnan(error) else error for error in errors]
        ax.errorbar(xs, means, yerr=bars, capsize=2, markersize=4.5, **AGENTS[agent].line())
    # How long its chains are depends on the problem.
    chains = as_one(rows, "sgmcmc")
    for label in labels_of(chains, "sgmcmc"):
        mean, error = mean_of(chains, label, metric)
        look = AGENTS["sgmcmc"]
        ax.axhline(mean, color=look.color, linestyle=look.linestyle, linewidth=1.2, label=look.label)
        if not math.isnan(error):
            ax.axhspan(mean - error, mean + error, color=look.color, alpha=0.08, linewidth=0)
    ax.set_xscale("log")
    first, last = ax.get_xlim()
    # Where costs span little more than a decade, a few labels within it; elsewhere the decades say enough.
    ax.xaxis.set_minor_formatter(LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(9, 9)))
    ax.xaxis.set_minor_locator(LogLocator(subs=(2, 5) if last < 50 * first else ()))
    # One particle with a prior function is ten times worse than the best agents: logarithms show the others, too.
    set_log_scale(ax)


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 5.2))
    axes = figure.subplots(2, 2, sharex="row")
    for row, (cost, words) in enumerate(_COSTS.items()):
        for column, (metric, title) in enumerate(_METRICS.items()):
            ax = axes[row][column]
            _draw_panel(ax, rows, metric, cost)
            ax.set_xlabel(words)
            ax.set_ylabel(title)
    handles, names = axes[0][1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=4)
    return figure
