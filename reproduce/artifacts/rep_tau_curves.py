"""Joint loss per label over the number of labels, of epinets and ensembles."""

from matplotlib.figure import Figure

from ..over_bases import NUM_SAMPLES, Rows, chosen, mean_of, values_of
from ..style import AGENTS, add_legend
from ._replication import RECIPES, look_of, study_figure

ARTIFACT = study_figure(
    title="Joint log-loss over the number of labels",
    order=4,
    parts=("ensembles", "epinets"),
    minutes=1,
    caption="Frozen networks and particles are of the smallest depth.",
)

_FEW = 50


def draw(rows: Rows) -> Figure:
    """Draw one panel with few indices and one with many; bases and particles are of the smallest depth."""
    depth = min(values_of(chosen(rows, part="epinets"), "depth"))
    figure = Figure(figsize=(6.75, 2.8))
    axes = figure.subplots(1, 2, sharey=True)
    ensembles = chosen(rows, part="ensembles", kind="tuned", depth=depth)
    sizes = sorted(values_of(ensembles, "size"))
    for ax, count in zip(axes, (_FEW, NUM_SAMPLES), strict=True):
        series = [
            (
                chosen(rows, part="epinets", kind="tuned", recipe=recipe, depth=depth, num_samples=count),
                look_of(f"epinet {recipe}"),
            )
            for recipe in RECIPES
        ]
        for rank, size in enumerate(sizes):
            look = AGENTS["ensemble"].line(label=f"ensemble of {size}", alpha=0.3 + 0.7 * (rank + 1) / len(sizes))
            series.append((chosen(ensembles, size=size), look))
        for own, look in series:
            taus = sorted(values_of(own, "tau"))
            found = [mean_of(chosen(own, tau=tau), "joint") for tau in taus]
            means = [mean / tau for (mean, _), tau in zip(found, taus, strict=True)]
            bars = [error / tau for (_, error), tau in zip(found, taus, strict=True)]
            ax.errorbar(taus, means, yerr=bars, capsize=2, markersize=3.5, **look)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(f"epinets with $M = {count}$", fontsize=8)
        ax.set_xlabel("labels $\\tau$")
    axes[0].set_ylabel("joint log-loss per label")
    add_legend(figure, axes[1], columns=5)
    return figure
