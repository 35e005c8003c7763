"""Joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..over_bases import Rows, chosen, values_of
from ._rep_dots import draw_dots
from ._scaling import add_legend, set_log_scale


def draw(rows: Rows) -> Figure:
    """Draw the joint loss of every agent under either sampling."""
    figure = Figure(figsize=(4.6, 2.8))
    ax = figure.subplots()
    draw_dots(ax, {name: chosen(rows, sampling=name) for name in values_of(rows, "sampling")}, "joint")
    ax.set_ylabel("joint log-loss, $\\tau = 10$")
    set_log_scale(ax)
    add_legend(figure, ax, columns=3)
    return figure
