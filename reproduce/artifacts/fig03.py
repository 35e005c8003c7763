"""Figure 3: how two ENNs use the index."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure, SubFigure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, equals, select
from ..stats import Rows
from ..style import AGENTS, INK, draw_cells


@dataclass(frozen=True, kw_only=True)
class EnnRabbitDuck:
    """Figure 3: the outputs of the two ENNs as functions of the index, and their tables.

    Attributes:
        logit_gap: difference of the logits where an ENN is certain.
        z_max: the index is drawn from `-z_max` to `z_max`.
        num_points: points of the curves, an even number so that none is zero.
        table_indices: the indices whose tables are shown.
    """

    logit_gap: float = 40.0
    z_max: float = 3.0
    num_points: int = 400
    table_indices: tuple[float, ...] = (-1.5, 1.5)

    def units(self) -> Mapping[str, "EnnRabbitDuck"]:
        """Return the one run."""
        return {"outputs": self}


ARTIFACT = Artifact(
    title="How two ENNs use the epistemic index",
    label="fig:enn_rabbit_duck",
    session="theory",
    tiers={"smoke": EnnRabbitDuck(num_points=40), "laptop": EnnRabbitDuck(), "paper": EnnRabbitDuck()},
    seed=3,
    run="rabbit_duck:outputs",
    tolerances={"z": Tolerance(absolute=1e-06), "probability": Tolerance(absolute=1e-06)},
    minutes={"smoke": 0.05, "laptop": 0.05, "paper": 0.05},
    data="exact probabilities of two ENNs, no data",
    exact=True,
    caption=(
        "Above, the prediction of one label at each index. Below, tables of two labels at the indices of the "
        "dotted lines, and their mean over all indices."
    ),
    place="Section 3, Figure 3a",
    claims=(
        Claim(
            "fig03-ambiguous",
            "The marginal prediction of the first ENN does not vary with the index.",
            "range of P(y = R | z) over the index",
            Exact("probability", select(kind="curve", enn="ambiguous"), "range"),
            equals(0, tolerance=1e-05),
        ),
        Claim(
            "fig03-insufficient",
            "Integrated over the index the table of the second ENN is diagonal, with 0.5 in each diagonal entry.",
            "largest distance of a cell from that",
            Exact(
                lambda row: abs(row["probability"] - 0.5 * (row["y1"] == row["y2"])),
                select(kind="integral", enn="insufficient"),
            ),
            equals(0, tolerance=1e-05),
            location="Section 3, Figure 3b",
        ),
    ),
)

_LABELS = ("R", "D")
_TITLES = {"ambiguous": "(a) an ambiguous drawing", "insufficient": "(b) insufficient data"}


def _cells(rows: Rows) -> dict[tuple[str, str], float]:
    """Return the probabilities of a table."""
    return {(row["y1"], row["y2"]): row["probability"] for row in rows}


def _pieces(curve: Rows) -> list[list[Mapping[str, Any]]]:
    """Return the parts of a curve between its jumps, so that no line is drawn across one."""
    pieces = [[curve[0]]]
    for before, after in pairwise(curve):
        if abs(after["probability"] - before["probability"]) > 0.1:
            pieces.append([])
        pieces[-1].append(after)
    return pieces


def _draw_enn(figure: SubFigure, rows: Rows, title: str) -> None:
    """Draw the output of one ENN along the index, and below it tables at two indices and their integral."""
    figure.suptitle(title, fontsize=10)
    shown = sorted({row["z"] for row in rows if row["kind"] == "at z"})
    grid = figure.add_gridspec(2, len(shown) + 1, height_ratios=(1, 1.1))
    ax = figure.add_subplot(grid[0, :])
    for piece in _pieces([row for row in rows if row["kind"] == "curve"]):
        ax.plot([row["z"] for row in piece], [row["probability"] for row in piece], color=AGENTS["epinet"].color)
    for z in shown:
        ax.axvline(z, color=INK, linewidth=0.8, linestyle=":")
    ax.set_xlabel("index $z$", labelpad=1)
    ax.set_ylabel("$P(y = R \\mid z)$")
    ax.set_ylim(-0.08, 1.08)
    ax.set_yticks([0, 0.5, 1])
    for column, z in enumerate(shown):
        at_z = [row for row in rows if row["kind"] == "at z" and row["z"] == z]
        table = figure.add_subplot(grid[1, column])
        draw_cells(table, _cells(at_z), _LABELS, _LABELS, title=f"$z = {z:g}$", y1="$y_1$", y2="$y_2$")
    integral = [row for row in rows if row["kind"] == "integral"]
    table = figure.add_subplot(grid[1, len(shown)])
    draw_cells(table, _cells(integral), _LABELS, _LABELS, title="mean over $z$", y1="$y_1$", y2="$y_2$")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 3.3))
    halves = figure.subfigures(1, 2, wspace=0.04, squeeze=False)
    for half, (enn, title) in zip(halves[0], _TITLES.items(), strict=True):
        _draw_enn(half, [row for row in rows if row["enn"] == enn], title)
    return figure
