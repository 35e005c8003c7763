"""Figure 6: as Figure 2, with the uncertainty baselines; at the paper's numbers of indices, and at equal ones."""

from matplotlib.figure import Figure

from ..configs.images import PAIRS
from ..over_seeds import shown_at
from ..style import add_legend
from ._images import NUM_SAMPLES, PAPER_COUNTS, TRAINED, Rows, draw_row, image_artifact

ARTIFACT = image_artifact(
    title="The same with the uncertainty baselines",
    label="fig:imagenet_overall_all",
    protocol=PAIRS,
    dataset="imagenet",
    parts=(*TRAINED, "baselines", "controls"),
    minutes={"smoke": 0.5, "laptop": 2, "paper": 300},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption=(
        "As Figure 2, with baselines on the smallest base network: above with the paper's numbers of index "
        "samples, below with one number for all."
    ),
)

_AGENTS = ("resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 4.9))
    axes = figure.subplots(2, 3)
    for line, counts, words in (
        (axes[0], PAPER_COUNTS, "dropout and sngp with $M = 10$"),
        (axes[1], {}, f"all with $M = {NUM_SAMPLES}$"),
    ):
        draw_row(line, shown_at(rows, counts, NUM_SAMPLES), _AGENTS, "parameters")
        line[1].set_title(words)
    add_legend(figure, axes[0][2])
    return figure
