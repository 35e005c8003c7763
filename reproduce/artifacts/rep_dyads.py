"""Joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, Select, at_most, select
from ..stats import BASES, Rows, values_of, where
from ..style import add_legend, set_log_scale
from ._replication import draw_dots, study_figure


def _of(agent: str) -> Select:
    """Return an agent under augmented dyadic sampling."""
    return select(part="dyads", agent=agent, sampling="augmented dyadic")


ARTIFACT = study_figure(
    title="Joint log-loss under augmented dyadic sampling",
    label="fig:augmented_dyadic",
    order=7,
    parts=("dyads",),
    minutes=2,
    tolerances={
        "joint": Tolerance(absolute=0.05, relative=0.05),
        "joint_error": Tolerance(absolute=0.02),
        "temperature": Tolerance(absolute=0.3),
    },
    place="Appendix E",
    claims=(
        Claim(
            "rep_dyads-ensemble",
            "The cold epinet has a lower joint loss than the ensemble of 20 under augmented dyadic sampling.",
            "joint loss minus the ensemble's, tau = 10, M = 1000, tuned",
            Difference("joint", _of("epinet cold"), _of("ensemble"), BASES),
            at_most(0),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the joint loss of every agent under either sampling."""
    figure = Figure(figsize=(4.6, 2.8))
    ax = figure.subplots()
    draw_dots(ax, {name: where(rows, sampling=name) for name in values_of(rows, "sampling")}, "joint")
    ax.set_ylabel("joint log-loss, $\\tau = 10$")
    set_log_scale(ax)
    add_legend(figure, ax, columns=3)
    return figure
