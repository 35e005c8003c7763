"""Figure 1: one marginal prediction, and two joint predictions that agree with it."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, PathPatch
from matplotlib.path import Path

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, equals, select
from ..stats import Rows
from ..style import INK, Cells, draw_cells


@dataclass(frozen=True, kw_only=True)
class RabbitDuck:
    """Figure 1: one drawing, two labels, two ENNs.

    Attributes:
        logit_gap: difference of the logits where an ENN is certain; 40 nats are a certainty in single precision.
        num_samples: index samples of the Monte Carlo tables that stand beside the exact ones.
    """

    logit_gap: float = 40.0
    num_samples: int = 1_000_000

    def units(self) -> Mapping[str, "RabbitDuck"]:
        """Return the one run."""
        return {"tables": self}


ARTIFACT = Artifact(
    title="Marginal and joint predictions of one drawing",
    label="fig:rabbit_duck",
    session="theory",
    tiers={"smoke": RabbitDuck(num_samples=1000), "laptop": RabbitDuck(num_samples=100_000), "paper": RabbitDuck()},
    seed=1,
    run="rabbit_duck:tables",
    tolerances={
        "exact": Tolerance(absolute=1e-06),
        "monte_carlo": Tolerance(absolute=0.001),
        "standard_error": Tolerance(absolute=1e-05),
    },
    minutes={"smoke": 0.05, "laptop": 0.05, "paper": 0.1},
    data="exact probabilities of two ENNs, no data",
    exact=True,
    caption=(
        "Left, the drawing and its marginal prediction, the same for both ENNs. Their joint and conditional tables "
        "of two labels differ."
    ),
    place="Section 1, Figure 1",
    claims=(
        Claim(
            "fig01-marginals",
            "Both joint predictions agree with the uniform marginal prediction.",
            "largest distance of a marginal probability from 1/2",
            Exact(lambda row: abs(row["exact"] - 0.5), select(table="marginal")),
            equals(0, tolerance=1e-05),
        ),
        Claim(
            "fig01-ambiguous",
            "With inevitable uncertainty the first label does not alter the prediction of the second.",
            "largest distance of P(y2 | y1) from 1/2",
            Exact(lambda row: abs(row["exact"] - 0.5), select(table="conditional", enn="ambiguous")),
            equals(0, tolerance=1e-05),
        ),
        Claim(
            "fig01-insufficient",
            "With insufficient data the first label gives all probability to the same second label.",
            "largest distance of P(y2 | y1) from one for equal labels, zero for others",
            Exact(
                lambda row: abs(row["exact"] - (row["y1"] == row["y2"])),
                select(table="conditional", enn="insufficient"),
            ),
            equals(0, tolerance=1e-05),
        ),
        Claim(
            "fig01-monte-carlo",
            "The joint prediction averaged over samples of a Gaussian index is the exact one.",
            "largest difference of a Monte Carlo probability from the exact one",
            Exact(
                lambda row: row["monte_carlo"] - row["exact"], select(table="joint"), "farthest", error="standard_error"
            ),
            equals(0, tolerance=0.01),
            location="Eq. (2)",
        ),
    ),
)

_LABELS = ("R", "D")
_TITLES = {"ambiguous": "ambiguous drawing", "insufficient": "insufficient data"}


def _pick(rows: Rows, enn: str, table: str) -> Cells:
    """Return the exact probabilities of one table."""
    chosen = [row for row in rows if row["enn"] == enn and row["table"] == table]
    return {(row["y1"], row.get("y2", "")): row["exact"] for row in chosen}


def _draw_animal(ax: Axes) -> None:
    """Draw a head with an eye, and at its left two long lobes: ears to one reader, a bill to the other."""
    outline = [
        (Path.MOVETO, (0.40, 0.50)),
        (Path.CURVE4, (0.20, 0.66)),
        (Path.CURVE4, (-0.55, 0.86)),
        (Path.CURVE4, (-0.60, 0.60)),
        (Path.CURVE4, (-0.62, 0.44)),
        (Path.CURVE4, (-0.05, 0.42)),
        (Path.CURVE4, (0.12, 0.30)),
        (Path.CURVE4, (-0.10, 0.36)),
        (Path.CURVE4, (-0.66, 0.34)),
        (Path.CURVE4, (-0.62, 0.12)),
        (Path.CURVE4, (-0.58, -0.06)),
        (Path.CURVE4, (0.10, -0.04)),
        (Path.CURVE4, (0.34, 0.02)),
        (Path.CURVE4, (0.52, 0.02)),
        (Path.CURVE4, (0.50, -0.30)),
        (Path.CURVE4, (0.42, -0.52)),
        (Path.LINETO, (1.16, -0.52)),
        (Path.CURVE4, (1.12, -0.30)),
        (Path.CURVE4, (1.16, -0.10)),
        (Path.CURVE4, (1.24, 0.06)),
        (Path.CURVE4, (1.30, 0.16)),
        (Path.CURVE4, (1.26, 0.20)),
        (Path.CURVE4, (1.21, 0.25)),
        (Path.CURVE4, (1.27, 0.30)),
        (Path.CURVE4, (1.28, 0.36)),
        (Path.CURVE4, (1.24, 0.44)),
        (Path.CURVE4, (1.10, 0.86)),
        (Path.CURVE4, (0.62, 0.80)),
        (Path.CURVE4, (0.40, 0.50)),
        (Path.CLOSEPOLY, (0.40, 0.50)),
    ]
    codes, points = zip(*outline, strict=True)
    ax.add_patch(PathPatch(Path(points, codes), facecolor="#f3f1ec", edgecolor=INK, linewidth=1.3, joinstyle="round"))
    ax.add_patch(Circle((0.74, 0.44), 0.055, facecolor=INK))
    ax.text(0.35, -0.66, "R: rabbit    D: duck", ha="center", va="top", fontsize=8)
    ax.set_xlim(-0.8, 1.5)
    ax.set_ylim(-0.8, 1.0)
    ax.set_aspect("equal")
    ax.axis("off")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 3.3))
    grid = figure.add_gridspec(2, 3, width_ratios=(1, 1.15, 1.15))
    _draw_animal(figure.add_subplot(grid[0, 0]))
    marginal = {("", y): p for (y, _), p in _pick(rows, "ambiguous", "marginal").items()}
    draw_cells(figure.add_subplot(grid[1, 0]), marginal, ("",), _LABELS, title="marginal prediction $P(y_1)$")
    for column, (enn, title) in enumerate(_TITLES.items(), start=1):
        how = {"rows": _LABELS, "columns": _LABELS, "y1": "$y_1$", "y2": "$y_2$"}
        joint = figure.add_subplot(grid[0, column])
        draw_cells(joint, _pick(rows, enn, "joint"), title=f"{title}\njoint $P(y_1, y_2)$", **how)
        conditional = figure.add_subplot(grid[1, column])
        draw_cells(conditional, _pick(rows, enn, "conditional"), title="conditional $P(y_2 | y_1)$", **how)
    return figure
