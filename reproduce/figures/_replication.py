"""What the figures of the replication share: the looks of epinets by recipe, and points with errors."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from ..over_bases import Rows, mean_of
from ..style import AGENTS

RECIPES = {
    "released": {"color": "#9dbdf0", "marker": "v", "linestyle": ":"},
    "paper": {"color": "#5f93e0", "marker": "^", "linestyle": "-."},
    "strict": {"color": "#0a1c40", "marker": "s", "linestyle": "--"},
    "cold": {"color": AGENTS["epinet"].color, "marker": "o", "linestyle": "-"},
}
"""Shades around the epinet's blue."""


def look_of(agent: str) -> dict[str, Any]:
    """Return how an agent of the replication is drawn; "epinet released" is the epinet of that recipe."""
    name, _, recipe = agent.partition(" ")
    if name == "epinet" and recipe in RECIPES:
        return {**RECIPES[recipe], "label": f"epinet, {recipe}"}
    look = AGENTS.get({"network": "resnet"}.get(agent, agent), AGENTS["mlp"])
    return look.line(label={"network": "single network", "ensemble": "ensemble of ResNet-20"}.get(agent, agent))


def points(groups: Sequence[Rows], metric: str) -> tuple[list[float], list[float]]:
    """Return the mean and the error of a metric for each group of rows."""
    found = [mean_of(rows, metric) for rows in groups]
    return [mean for mean, _ in found], [0.0 if math.isnan(error) else error for _, error in found]


def errorbar(ax: Axes, xs: Sequence[float], groups: Sequence[Rows], metric: str, **look: Any) -> None:
    """Draw the means of groups of rows over a cost, with their errors."""
    means, errors = points(groups, metric)
    ax.errorbar(xs, means, yerr=errors, capsize=2, **{"markersize": 4, **look})
