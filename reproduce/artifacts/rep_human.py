"""Joint loss when people give the labels, and what the two parts of an uncertainty tell of it."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, Select, at_most, select
from ..stats import BASES, Rows, values_of, where
from ..style import add_legend, set_log_scale
from ._replication import draw_dots, study_figure


def _of(agent: str, subset: str) -> Select:
    """Return an agent on some pairs with labels of people."""
    return select(part="human", agent=agent, subset=subset, labels="people")


ARTIFACT = study_figure(
    title="Joint log-loss when people give the labels",
    order=8,
    parts=("human",),
    minutes=5,
    tolerances={
        "joint": Tolerance(absolute=0.05, relative=0.05),
        "joint_error": Tolerance(absolute=0.02),
        "temperature": Tolerance(absolute=0.3),
        "human_marginal": Tolerance(absolute=0.02),
        "aleatoric_correlation": Tolerance(absolute=0.03),
        "epistemic_correlation": Tolerance(absolute=0.03),
        "auroc_errors": Tolerance(absolute=0.02),
    },
    caption=(
        "Pairs of images on which people agree are clear, others ambiguous. Right, rank correlation of the parts "
        "of the uncertainty with people's disagreement, and AUROC of the epistemic part as a detector of errors."
    ),
    place="set here",
    claims=(
        Claim(
            "rep_human-ambiguous",
            "On ambiguous pairs with labels of people the cold epinet has a lower joint loss than the ensemble.",
            "joint loss minus the ensemble's, tau = 10, M = 1000, tuned",
            Difference("joint", _of("epinet cold", "ambiguous"), _of("ensemble", "ambiguous"), BASES),
            at_most(0),
        ),
        Claim(
            "rep_human-strict",
            "With people's labels, an epinet that keeps the base's marginals has a lower joint loss than the ensemble.",
            "joint loss of `strict` minus the ensemble's, all pairs, tau = 10, M = 1000, tuned",
            Difference("joint", _of("epinet strict", "all"), _of("ensemble", "all"), BASES),
            at_most(0),
        ),
    ),
)

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
        own = where(rows, labels=labels)
        draw_dots(ax, {subset: where(own, subset=subset) for subset in values_of(own, "subset")}, "joint")
        ax.set_title(f"labels: {labels}", fontsize=8)
        set_log_scale(ax)
    axes[0].set_ylabel("joint log-loss, $\\tau = 10$")
    once = where(rows, labels="people", subset="all")
    told = {words: [{**row, "told": row[name]} for row in once] for name, words in _TOLD.items()}
    draw_dots(axes[2], told, "told")
    axes[2].set_title("rank correlations, AUROC", fontsize=8)
    add_legend(figure, axes[0], columns=3)
    return figure
