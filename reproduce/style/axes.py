"""What several figures do to their axes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter


def set_log_scale(ax: Axes) -> None:
    """Make the axis of a loss logarithmic, with plain numbers beside it."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_locator(NullLocator())


def add_legend(figure: Figure, ax: Axes, *, columns: int = 7) -> None:
    """Put the legend of a panel above the figure, in at most this many columns."""
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), columns))
