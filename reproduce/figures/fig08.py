"""Figure 8: joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ._scaling import Rows, add_legend, draw_agents

_AGENTS = ("resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het")


def draw(rows: Rows) -> Figure:
    """Draw both losses over parameters."""
    figure = Figure(figsize=(6.75, 3.0))
    axes = figure.subplots(1, 2)
    for ax, metric, words in zip(axes, ("joint", "augmented"), ("dyadic", "augmented dyadic"), strict=True):
        draw_agents(ax, rows, _AGENTS, metric, "parameters")
        ax.set_xlabel("parameters")
        ax.set_ylabel(f"joint log-loss, {words}")
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[0])
    return figure
