"""Means of a metric by agent, side by side in each setting."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from ..over_bases import Rows, values_of
from ._replication import errorbar, look_of


def draw_dots(ax: Axes, settings: Mapping[str, Rows], metric: str) -> None:
    """Draw the mean over bases of a metric for each agent in each setting."""
    agents = list(dict.fromkeys(agent for rows in settings.values() for agent in values_of(rows, "agent")))
    width = 0.8 / max(1, len(agents))
    for number, agent in enumerate(agents):
        groups = [[row for row in rows if row["agent"] == agent] for rows in settings.values()]
        places = [place + width * (number - (len(agents) - 1) / 2) for place in range(len(settings))]
        errorbar(ax, places, groups, metric, **{**look_of(agent), "linestyle": "none"})
    ax.set_xticks(range(len(settings)), list(settings), fontsize=7)
    ax.set_xlim(-0.5, len(settings) - 0.5)
    ax.grid(visible=False, axis="x")
