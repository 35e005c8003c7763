"""Detection of rotated and corrupted images by the uncertainty of agents."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, at_least, select
from ..stats import BASES, Rows, values_of, where
from ..style import add_legend
from ._replication import errorbar, look_of, study_figure

ARTIFACT = study_figure(
    title="Detection of rotated and corrupted images",
    order=9,
    parts=("shifts",),
    minutes=3,
    tolerances={
        "error": Tolerance(absolute=0.02),
        "auroc_epistemic": Tolerance(absolute=0.03),
        "auroc_total": Tolerance(absolute=0.03),
    },
    caption=(
        "Area under the ROC curve, by the epistemic part of the uncertainty and by all of it; the dotted line"
        " is chance."
    ),
    place="set here",
    claims=(
        Claim(
            "rep_ood-epistemic",
            "The epistemic part of the cold epinet's uncertainty detects shifts better than its base's entropy.",
            "mean AUROC over shifts minus the base's",
            Difference(
                "auroc_epistemic",
                select(part="shifts", agent="epinet cold"),
                select(part="shifts", agent="network"),
                BASES,
                other="auroc_total",
            ),
            at_least(0),
        ),
    ),
)

_SCORES = {"auroc_epistemic": "epistemic part", "auroc_total": "all of the entropy"}


def draw(rows: Rows) -> Figure:
    """Draw the area under the ROC curve over the strength of each shift, for two scores."""
    kinds = values_of(rows, "shift")
    figure = Figure(figsize=(6.75, 3.8))
    axes = figure.subplots(len(_SCORES), len(kinds), sharey=True, squeeze=False)
    for line, (metric, words) in zip(axes, _SCORES.items(), strict=True):
        for ax, kind in zip(line, kinds, strict=True):
            for agent in values_of(rows, "agent"):
                # A single network has no epistemic part.
                if agent == "network" and metric == "auroc_epistemic":
                    continue
                own = where(rows, shift=kind, agent=agent)
                strengths = sorted(values_of(own, "strength"))
                groups = [where(own, strength=strength) for strength in strengths]
                errorbar(ax, strengths, groups, metric, **look_of(agent))
            ax.set_title(kind, fontsize=8)
            ax.axhline(0.5, color="#8a8a8a", linewidth=0.6, linestyle=":")
        line[0].set_ylabel(f"AUROC, {words}", fontsize=7)
    for ax, kind in zip(axes[-1], kinds, strict=True):
        ax.set_xlabel("quarter turns" if kind == "rotation" else "strength")
    add_legend(figure, axes[-1][0], columns=3)
    return figure
