"""Joint loss of epinets over the number of indices, beside ensembles."""

from matplotlib.figure import Figure

from ..claims import Claim, Difference, Select, at_most, select
from ..stats import BASES, SMALLEST, Rows, values_of, where
from ..style import AGENTS, add_legend
from ._replication import RECIPES, TAU, errorbar, look_of, study_figure


def _with(num_samples: int) -> Select:
    """Return the cold epinets on bases of the smallest depth with this many indices."""
    return select(part="epinets", recipe="cold", kind="tuned", tau=TAU, num_samples=num_samples, depth=SMALLEST)


ARTIFACT = study_figure(
    title="Joint log-loss over the number of indices",
    order=3,
    parts=("ensembles", "epinets"),
    minutes=1,
    caption=(
        "One panel for each depth of the frozen network; dashed lines are ensembles of networks of the smallest depth."
    ),
    place="Section 6, Appendix G.3",
    claims=(
        Claim(
            "rep_m_curves-indices",
            "More indices lower the joint loss of an epinet.",
            "joint loss at M = 1000 minus that at M = 10, tau = 10",
            Difference("joint", _with(1000), _with(10), BASES),
            at_most(0),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw one panel per depth of the bases; ensembles of the smallest depth are lines across all, named at the end."""
    epinets = where(rows, part="epinets", kind="tuned", tau=TAU)
    depths = sorted(values_of(epinets, "depth"))
    ensembles = where(rows, part="ensembles", kind="tuned", tau=TAU, depth=depths[0])
    figure = Figure(figsize=(6.75, 2.7))
    axes = figure.subplots(1, len(depths), sharey=True, squeeze=False)[0]
    for ax, depth in zip(axes, depths, strict=True):
        for recipe in RECIPES:
            own = where(epinets, recipe=recipe, depth=depth)
            counts = sorted(values_of(own, "num_samples"))
            errorbar(ax, counts, [where(own, num_samples=m) for m in counts], "joint", **look_of(f"epinet {recipe}"))
        for size in sorted(values_of(ensembles, "size"))[1:]:
            level, _ = BASES.mean(where(ensembles, size=size), "joint")
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
