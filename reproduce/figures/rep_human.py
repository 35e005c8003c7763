"""Joint loss when people give the labels, and what the two parts of an uncertainty tell of it."""

from matplotlib.figure import Figure

from ..over_bases import Rows, chosen, values_of
from ._rep_dots import draw_dots
from ._scaling import add_legend, set_log_scale

_TOLD = {
    "aleatoric_correlation": "aleatoric,\npeople",
    "epistemic_correlation": "epistemic,\npeople",
    "auroc_errors": "epistemic,\nerrors",
}


def draw(rows: Rows) -> Figure:
    """Draw the joint loss on clear and ambiguous pairs for both kinds of label, and the correlations."""
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, 3)
    for ax, labels in zip(axes, ("true label", "people"), strict=False):
        own = chosen(rows, labels=labels)
        draw_dots(ax, {subset: chosen(own, subset=subset) for subset in values_of(own, "subset")}, "joint")
        ax.set_title(f"labels: {labels}", fontsize=8)
        set_log_scale(ax)
    axes[0].set_ylabel("joint log-loss, $\\tau = 10$")
    once = chosen(rows, labels="people", subset="all")
    told = {words: [{**row, "told": row[name]} for row in once] for name, words in _TOLD.items()}
    draw_dots(axes[2], told, "told")
    axes[2].set_title("rank correlations, AUROC", fontsize=8)
    add_legend(figure, axes[0], columns=3)
    return figure
