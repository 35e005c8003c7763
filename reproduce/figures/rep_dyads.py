"""Joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..over_bases import Rows, chosen, values_of
from ._rep_bars import draw_bars
from ._scaling import add_legend


def draw(rows: Rows) -> Figure:
    """Draw the joint loss of every agent under either sampling."""
    figure = Figure(figsize=(4.6, 2.8))
    ax = figure.subplots()
    draw_bars(ax, {name: chosen(rows, sampling=name) for name in values_of(rows, "sampling")}, "joint")
    ax.set_ylabel("joint log-loss, $\\tau = 10$")
    ax.set_yscale("log")
    add_legend(figure, ax, columns=3)
    return figure
