"""Theorem 5: the tables of two labels from one end of alpha to the other, and what an index believes."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, PValue, at_least, at_most, equals, select
from ..configs import unit_of
from ..stats import LARGEST, SMALLEST, Measurement, Rows
from ..style import AGENTS, INK, MUTED, draw_cells


@dataclass(frozen=True, kw_only=True)
class UrnIdentities:
    """Theorem 5: what has a closed form, by two routes.

    Attributes:
        alphas: aleatoric shares of the quadratures and enumerations.
        table_alphas: aleatoric shares of the tables that are drawn.
        max_labels: number of labels up to which all labelings and all partitions are enumerated.
        num_labels: number of labels of the quadrature.
        num_points: points per axis of the quadrature over the two Gaussian variables of the noise.
    """

    alphas: tuple[float, ...]
    table_alphas: tuple[float, ...]
    max_labels: int
    num_labels: int
    num_points: int


@dataclass(frozen=True, kw_only=True)
class UrnSamples:
    """Theorem 5 at one aleatoric share, by samples of the ENN.

    Attributes:
        alpha: the aleatoric share.
        num_samples: index samples.
    """

    alpha: float
    num_samples: int


@dataclass(frozen=True, kw_only=True)
class ExactMarginals:
    """Theorem 5: an ENN whose marginals are exactly its base's, and whose labels follow an urn."""

    alphas: tuple[float, ...] = (0.05, 0.2, 0.5, 0.8)
    table_alphas: tuple[float, ...] = (0.001, 0.25, 0.5, 0.75, 1.0)
    max_labels: int = 6
    num_labels: int = 10
    num_points: int = 2001
    num_samples: int = 2_000_000

    def units(self) -> Mapping[str, UrnIdentities | UrnSamples]:
        """Return the identities, and one run of samples per aleatoric share."""
        identities = unit_of(UrnIdentities, self)
        samples = {f"samples-{alpha:g}": UrnSamples(alpha=alpha, num_samples=self.num_samples) for alpha in self.alphas}
        return {"identities": identities, **samples}


LEVEL = 0.001
"""How often a true statement may be rejected, over all tests of a claim together."""


def _difference(*quantities: str) -> Exact:
    """Return the largest difference of identities that two routes compute."""
    return Exact("difference", select(kind="identity", quantity=lambda name: name in quantities))


def _ends(rows: Rows) -> Measurement:
    """Return how far the tables at the smallest and the largest alpha are from those of Figure 1."""
    certain = Exact(
        lambda row: abs(row["probability"] - 0.5 * (row["y1"] == row["y2"])), select(kind="table", alpha=SMALLEST)
    )
    chance = Exact(lambda row: abs(row["probability"] - 0.25), select(kind="table", alpha=LARGEST))
    return max(certain(rows), chance(rows))


def _is_joint(statistic: str) -> bool:
    """Return whether a test is one of several labels at one index."""
    return statistic in ("two labels", "5 labels")


_CONTROLS = (
    (
        "alpha",
        "noise of an alpha that is 10 percent too large is rejected by its marginals.",
        "alpha off",
        "marginal",
    ),
    ("width", "fields with a deviation that is 10 percent too large are rejected.", "too wide", "marginal"),
    ("shared", "noise that classes share is rejected.", "shared noise", "marginal"),
    ("table", "the urn of an alpha that is 0.05 larger is rejected.", "table of alpha + 0.05", _is_joint),
)
"""What must be rejected: a name, the words, the head, and what is tested about it."""

ARTIFACT = Artifact(
    title="An ENN whose marginals are exactly its base's",
    session="theory",
    seed=105,
    tiers={
        "smoke": ExactMarginals(alphas=(0.2, 0.5), max_labels=4, num_points=401, num_samples=100_000),
        "laptop": ExactMarginals(num_points=1001, num_samples=200_000),
        "paper": ExactMarginals(),
    },
    run="thm5:run",
    minutes={"smoke": 0.3, "laptop": 0.5, "paper": 1.5},
    data="exact probabilities, and simulated labels",
    exact=True,
    caption=(
        "Above, tables of two labels of a drawing that is a rabbit or a duck with equal probability. Left, the "
        "line is the theorem, marks are counts of labels drawn from the ENN. Right, the distribution of "
        "predictions over indices; all have the same mean."
    ),
    tolerances={
        "difference": Tolerance(absolute=1e-9),
        "probability": Tolerance(absolute=1e-6),
        "density": Tolerance(relative=1e-6),
        "share": Tolerance(absolute=1e-3),
        "p": Tolerance(absolute=0.1),
    },
    place="Ours, Theorem 5",
    claims=(
        Claim(
            "thm5-noise",
            "Kanter's noise, whose quantiles the head takes, is positive stable: E exp(-tS) is exp(-t^alpha).",
            "largest difference, by quadrature",
            _difference("noise"),
            equals(0, tolerance=1e-6),
        ),
        Claim(
            "thm5-marginal",
            "The average prediction of the head is the prediction of its base, whatever alpha.",
            "largest difference of a probability, by quadrature",
            _difference("marginal"),
            equals(0, tolerance=1e-9),
        ),
        Claim(
            "thm5-two-labels",
            "A second label repeats the first with probability 1 - alpha and is a fresh draw otherwise.",
            "largest difference of a cell of the table of two labels",
            _difference("two labels"),
            equals(0, tolerance=1e-9),
        ),
        Claim(
            "thm5-urn",
            "Labels at one input follow the Pitman-Yor urn: by quadrature and by all partitions into clusters.",
            "largest difference of a probability",
            _difference("urn, quadrature", "urn, partitions"),
            equals(0, tolerance=1e-9),
        ),
        Claim(
            "thm5-consistent",
            "The closed forms are one joint prediction: they sum to one, and over one label more to fewer.",
            "largest difference",
            _difference("sum to one", "one more label"),
            equals(0, tolerance=1e-9),
        ),
        Claim(
            "thm5-ends",
            "The two tables of Figure 1 are the two ends of alpha.",
            "largest distance of a cell, at alpha = 0.001 and 1",
            _ends,
            equals(0, tolerance=0.001),
            location="Ours, Theorem 5, and Figure 1",
        ),
        Claim(
            "thm5-samples-marginal",
            "Labels that are drawn from the coherent head have the base's probabilities at every input.",
            "smallest p-value of exact tests, adjusted for their number",
            PValue(select(kind="test", head="right", statistic="marginal")),
            at_least(LEVEL),
        ),
        Claim(
            "thm5-samples-joint",
            "Two and five labels that are drawn at one index have the probabilities of the urn.",
            "smallest p-value of exact tests, adjusted for their number",
            PValue(select(kind="test", head="right", statistic=_is_joint)),
            at_least(LEVEL),
        ),
        *(
            Claim(
                f"thm5-power-{name}",
                f"The tests can fail: {words}",
                "largest p-value over alpha, adjusted for their number",
                PValue(select(kind="test", head=head, statistic=statistic), each="alpha"),
                at_most(LEVEL),
                location="Ours, a control",
            )
            for name, words, head, statistic in _CONTROLS
        ),
    ),
)

_LABELS = ("R", "D")
_STYLES = ("-", "--", "-.", ":")
_BASE = 0.6  # Class 0 of the input whose counts are drawn.


def _draw_repeats(ax: Axes, rows: Rows) -> None:
    """Draw how often a second label repeats the first: the line of the theorem, and counts."""
    ax.plot([0, 1], [1, _BASE], color=INK, linewidth=1.0, label="$1 - \\alpha + \\alpha w$")
    chosen = [row for row in rows if row["kind"] == "test" and row["head"] == "right" and row["input"] == 1]
    first = {row["alpha"]: row for row in chosen if row["statistic"] == "marginal" and row["cell"] == "A"}
    both = {row["alpha"]: row for row in chosen if row["statistic"] == "two labels" and row["cell"] == "AA"}
    alphas = sorted(first)
    shares = [both[alpha]["share"] / first[alpha]["share"] for alpha in alphas]
    ax.plot(alphas, shares, color=AGENTS["epinet"].color, marker="o", linestyle="", label="counted")
    ax.set_title(f"second label repeats the first, $w = {_BASE}$")
    ax.set_xlabel("aleatoric share $\\alpha$")
    ax.set_ylim(0.5, 1.05)
    ax.legend()


def _draw_densities(ax: Axes, rows: Rows) -> None:
    """Draw the distribution of the probability of R over indices."""
    chosen = [row for row in rows if row["kind"] == "density"]
    for style, alpha in zip(_STYLES, sorted({row["alpha"] for row in chosen}), strict=False):
        curve = [row for row in chosen if row["alpha"] == alpha]
        density = [row["density"] for row in curve]
        ax.plot([row["p"] for row in curve], density, color=INK, linestyle=style, label=f"$\\alpha = {alpha:g}$")
    ax.axvline(0.5, color=MUTED, linewidth=0.8)
    ax.set_ylim(0, 4)
    ax.set_title("density of $P(R)$ over indices, mean 0.5 each")
    ax.set_xlabel("$P(R \\mid z)$")
    ax.legend()


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 4.4))
    tables = [row for row in rows if row["kind"] == "table"]
    alphas = sorted({row["alpha"] for row in tables})
    grid = figure.add_gridspec(2, 1, height_ratios=(1, 1.5))
    above = grid[0].subgridspec(1, len(alphas))
    for column, alpha in enumerate(alphas):
        cells = {(row["y1"], row["y2"]): row["probability"] for row in tables if row["alpha"] == alpha}
        how = {"rows": _LABELS, "columns": _LABELS, "y1": "$y_1$", "y2": "$y_2$"}
        draw_cells(figure.add_subplot(above[column]), cells, title=f"$\\alpha = {alpha:g}$", **how)
    below = grid[1].subgridspec(1, 2)
    _draw_repeats(figure.add_subplot(below[0]), rows)
    _draw_densities(figure.add_subplot(below[1]), rows)
    return figure
