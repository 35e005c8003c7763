"""Bars of a loss by agent, one group of bars per setting."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from ..over_bases import Rows, values_of
from ._replication import look_of, points


def draw_bars(ax: Axes, settings: Mapping[str, Rows], metric: str) -> None:
    """Draw the mean over bases of a metric for each agent in each setting."""
    agents = list(dict.fromkeys(agent for rows in settings.values() for agent in values_of(rows, "agent")))
    width = 0.8 / max(1, len(agents))
    for number, agent in enumerate(agents):
        groups = [[row for row in rows if row["agent"] == agent] for rows in settings.values()]
        means, errors = points(groups, metric)
        places = [place + width * (number - (len(agents) - 1) / 2) for place in range(len(settings))]
        look = look_of(agent)
        bars = {"capsize": 1.5, "linewidth": 0.8}
        ax.bar(places, means, width, yerr=errors, color=look["color"], label=look["label"], error_kw=bars)
    ax.set_xticks(range(len(settings)), list(settings), fontsize=7)
