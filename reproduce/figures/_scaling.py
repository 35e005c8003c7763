"""What the image figures share: losses of several agents over a cost, with standard errors over seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from ..over_seeds import mean_of, shown_at, sizes_of
from ..style import AGENTS

METRICS = {"error": "classification error", "marginal": "marginal log-loss", "joint": "joint log-loss, $\\tau = 10$"}
COSTS = {"parameters": "parameters", "flops": "FLOPs of a prediction"}
NUM_SAMPLES = 1000

# The numbers of indices that the paper evaluates single-model baselines at.
PAPER_COUNTS = {"dropout": 10, "sngp": 10}

Rows = Sequence[Mapping[str, Any]]


def draw_agents(ax: Axes, rows: Rows, agents: Sequence[str], metric: str, cost: str) -> None:
    """Draw a metric over a cost; the sizes of an agent are joined by a line."""
    for agent in agents:
        points = []
        for size in sizes_of(rows, agent):
            mean, error = mean_of(rows, metric, agent=agent, size=size)
            place, _ = mean_of(rows, cost, agent=agent, size=size)
            points.append((place, mean, 0.0 if math.isnan(error) else error))
        if points:
            xs, means, bars = zip(*sorted(points), strict=True)
            ax.errorbar(xs, means, yerr=bars, capsize=2, markersize=4.5, **AGENTS[agent].line())
    ax.set_xscale("log")


def draw_row(axes: Sequence[Axes], rows: Rows, agents: Sequence[str], cost: str) -> None:
    """Draw the three losses side by side."""
    for ax, (metric, words) in zip(axes, METRICS.items(), strict=True):
        draw_agents(ax, rows, agents, metric, cost)
        ax.set_xlabel(COSTS[cost])
        ax.set_ylabel(words)
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])


def scaling_figure(rows: Rows, agents: Sequence[str], cost: str) -> Figure:
    """Draw one row of three panels, at the figures' number of indices."""
    figure = Figure(figsize=(6.75, 2.6))
    axes = figure.subplots(1, 3)
    draw_row(axes, shown_at(rows, {}, NUM_SAMPLES), agents, cost)
    add_legend(figure, axes[2])
    return figure


def set_log_scale(ax: Axes) -> None:
    """Make the axis of a loss logarithmic, with plain numbers beside it."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def add_legend(figure: Figure, ax: Axes, *, columns: int = 7) -> None:
    """Put the legend of a panel above the figure, in so many columns at most."""
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), columns))
