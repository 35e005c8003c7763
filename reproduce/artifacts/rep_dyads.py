"""Joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..over_bases import Rows, chosen, values_of
from ..style import add_legend, set_log_scale
from ._replication import draw_dots, study_figure

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
)


def draw(rows: Rows) -> Figure:
    """Draw the joint loss of every agent under either sampling."""
    figure = Figure(figsize=(4.6, 2.8))
    ax = figure.subplots()
    draw_dots(ax, {name: chosen(rows, sampling=name) for name in values_of(rows, "sampling")}, "joint")
    ax.set_ylabel("joint log-loss, $\\tau = 10$")
    set_log_scale(ax)
    add_legend(figure, ax, columns=3)
    return figure
