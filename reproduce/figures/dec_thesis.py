"""Beyond the paper: whether marginal or joint divergence tells how much regret an agent will have."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..rank_correlation import correlations, tables
from ..style import AGENTS, INK

Rows = Sequence[Mapping[str, Any]]

_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_FILLS = ("full", "none", "left")


def _agents(rows: Rows) -> list[str]:
    """Return the agent of each label."""
    return list({row["label"]: row["agent"] for row in rows}.values())


def _draw_panel(ax: Axes, rows: Rows, metric: int) -> None:
    """Draw each agent in each setting; the temperature is the filling of the marker."""
    for number, ((input_dim, temperature), table) in enumerate(tables(rows).items()):
        fill = _FILLS[number % len(_FILLS)]
        count = table.shape[1]
        means = table.mean(axis=1)
        errors = table.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(means)
        for agent, mean, error in zip(_agents(rows), means, errors, strict=True):
            look = AGENTS[agent].line(linestyle="", label=None, fillstyle=fill, markersize=4.5)
            ax.errorbar(
                [mean[metric]], [mean[2]], xerr=[error[metric]], yerr=[error[2]], elinewidth=0.5, capsize=0, **look
            )
        words = f"D = {input_dim}, $\\rho$ = {temperature:g}"
        ax.plot([], [], color=INK, marker="o", linestyle="", fillstyle=fill, markersize=4.5, label=words)
    ax.set_xscale("log")
    ax.set_ylabel("regret / regret of uniform choice")


def _draw_correlations(ax: Axes, rows: Rows) -> None:
    """Draw the rank correlations, with intervals that hold 95 percent of the resamples."""
    values, resamples = correlations(rows)
    for place, name in enumerate(_METRICS):
        look = AGENTS[name]
        ax.plot([place], [values[name]], color=look.color, marker=look.marker, markersize=6)
        if len(resamples[name]) > 100:
            ax.plot([place] * 2, np.quantile(resamples[name], (0.025, 0.975)), color=look.color, linewidth=1.5)
    ax.axhline(0.0, color=INK, linewidth=0.8, linestyle=":")
    ax.set_xticks(range(len(_METRICS)), list(_METRICS))
    ax.set_xlim(-0.6, len(_METRICS) - 0.4)
    ax.set_ylim(-1.05, 1.05)
    ax.set_ylabel("rank correlation with regret")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 3.2))
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 0.55))
    for metric, (ax, words) in enumerate(zip(axes[:2], _METRICS.values(), strict=True)):
        _draw_panel(ax, rows, metric)
        ax.set_xlabel(words)
    axes[0].legend(loc="best", fontsize=6.5)
    _draw_correlations(axes[2], rows)
    for agent in dict.fromkeys(_agents(rows)):
        axes[2].plot([], [], **AGENTS[agent].line(linestyle=""))
    handles, names = axes[2].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure
