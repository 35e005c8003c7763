"""Joint loss per label over the number of labels, of epinets and ensembles."""

from matplotlib.figure import Figure

from ..claims import Claim, Difference, Select, at_least, at_most, select
from ..stats import BASES, SMALLEST, Rows, values_of, where
from ..style import AGENTS, add_legend
from ._replication import NUM_SAMPLES, RECIPES, look_of, study_figure

_UNTUNED = {"kind": "untuned", "tau": 30, "depth": SMALLEST}
_RELEASED = select(part="epinets", recipe="released", num_samples=50, **_UNTUNED)


def _ensembles(size: int) -> Select:
    """Return the ensembles of this many particles."""
    return select(part="ensembles", size=size, **_UNTUNED)


ARTIFACT = study_figure(
    title="Joint log-loss over the number of labels",
    order=4,
    parts=("ensembles", "epinets"),
    minutes=1,
    caption="Frozen networks and particles are of the smallest depth.",
    place="a public replication",
    claims=(
        Claim(
            "rep_tau_curves-three",
            "At tau = 30 and M = 50 the released epinet has a lower joint loss than ensembles of 3.",
            "joint loss minus the ensembles', untuned",
            Difference("joint", _RELEASED, _ensembles(3), BASES),
            at_most(0),
        ),
        Claim(
            "rep_tau_curves-ten",
            "At tau = 30 and M = 50 ensembles of 10 have a lower joint loss than the released epinet.",
            "joint loss minus the ensembles', untuned",
            Difference("joint", _RELEASED, _ensembles(10), BASES),
            at_least(0),
        ),
    ),
)

_FEW = 50


def draw(rows: Rows) -> Figure:
    """Draw one panel with few indices and one with many; bases and particles are of the smallest depth."""
    depth = min(values_of(where(rows, part="epinets"), "depth"))
    figure = Figure(figsize=(6.75, 2.8))
    axes = figure.subplots(1, 2, sharey=True)
    ensembles = where(rows, part="ensembles", kind="tuned", depth=depth)
    sizes = sorted(values_of(ensembles, "size"))
    for ax, count in zip(axes, (_FEW, NUM_SAMPLES), strict=True):
        series = [
            (
                where(rows, part="epinets", kind="tuned", recipe=recipe, depth=depth, num_samples=count),
                look_of(f"epinet {recipe}"),
            )
            for recipe in RECIPES
        ]
        for rank, size in enumerate(sizes):
            look = AGENTS["ensemble"].line(label=f"ensemble of {size}", alpha=0.3 + 0.7 * (rank + 1) / len(sizes))
            series.append((where(ensembles, size=size), look))
        for own, look in series:
            taus = sorted(values_of(own, "tau"))
            found = [BASES.mean(where(own, tau=tau), "joint") for tau in taus]
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
