"""Figure 6: as Figure 2, with the uncertainty baselines; at the paper's numbers of indices, and at equal ones."""

from matplotlib.figure import Figure

from ..over_seeds import shown_at
from ._scaling import NUM_SAMPLES, PAPER_COUNTS, Rows, add_legend, draw_row

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
