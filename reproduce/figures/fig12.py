"""Figure 12: as Figure 2, against the operations of a prediction."""

from matplotlib.figure import Figure

from ._scaling import Rows, scaling_figure


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, ("resnet", "ensemble", "epinet"), "flops")
