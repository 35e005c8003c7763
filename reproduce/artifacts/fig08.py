"""Figure 8: joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..configs.images import PAIRS
from ..style import add_legend
from ._images import LOSSES, Rows, draw_agents, image_artifact

ARTIFACT = image_artifact(
    title="Joint log-loss under augmented dyadic sampling",
    label="fig:augmented_dyadic",
    protocol=PAIRS,
    dataset="imagenet",
    parts=("augmented", "augmented-baselines"),
    minutes={"smoke": 0.5, "laptop": 1, "paper": 0},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    tolerances={**LOSSES, "augmented": Tolerance(absolute=2, relative=0.2), "augmented_error": Tolerance(absolute=1)},
    caption="Left, plain dyadic sampling; right, the augmented one.",
)

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
