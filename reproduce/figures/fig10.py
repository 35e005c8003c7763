"""Figure 10: base networks, ensembles and epinets on the stand-in for CIFAR-10."""

from matplotlib.figure import Figure

from ._scaling import Rows, scaling_figure


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    return scaling_figure(rows, ("resnet", "ensemble", "epinet"), "parameters")
