"""Joint loss of epinets over the number of indices, beside ensembles."""

from matplotlib.figure import Figure

from ..over_bases import TAU, Rows, chosen, mean_of, values_of
from ..style import AGENTS, add_legend
from ._replication import RECIPES, errorbar, look_of, study_figure

ARTIFACT = study_figure(
    title="Joint log-loss over the number of indices",
    order=3,
    parts=("ensembles", "epinets"),
    minutes=1,
    caption=(
        "One panel for each depth of the frozen network; dashed lines are ensembles of networks of the smallest depth."
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw one panel per depth of the bases; ensembles of the smallest depth are lines across all, named at the end."""
    epinets = chosen(rows, part="epinets", kind="tuned", tau=TAU)
    depths = sorted(values_of(epinets, "depth"))
    ensembles = chosen(rows, part="ensembles", kind="tuned", tau=TAU, depth=depths[0])
    figure = Figure(figsize=(6.75, 2.7))
    axes = figure.subplots(1, len(depths), sharey=True, squeeze=False)[0]
    for ax, depth in zip(axes, depths, strict=True):
        for recipe in RECIPES:
            own = chosen(epinets, recipe=recipe, depth=depth)
            counts = sorted(values_of(own, "num_samples"))
            errorbar(ax, counts, [chosen(own, num_samples=m) for m in counts], "joint", **look_of(f"epinet {recipe}"))
        for size in sorted(values_of(ensembles, "size"))[1:]:
            level, _ = mean_of(chosen(ensembles, size=size), "joint")
            ax.axhline(level, color=AGENTS["ensemble"].color, linewidth=0.9, linestyle="--", zorder=0)
            if ax is axes[-1]:
                words = f"ensemble of {size:g}"
                ax.annotate(words, (1.03, level), xycoords=("axes fraction", "data"), fontsize=6, va="center")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"ResNet-{depth}", fontsize=8)
        ax.set_xlabel("indices $M$")
    axes[0].set_ylabel(f"joint log-loss, $\\tau = {TAU}$")
    add_legend(figure, axes[0])
    return figure
