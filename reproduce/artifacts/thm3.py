"""Theorem 3: BNNs and their ENNs give one joint distribution; the counter-example."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, PValue, at_least, at_most, equals, select
from ..configs import unit_of
from ..stats import Measurement, Rows, uniformity, where
from ..style import AGENTS, INK, MUTED


@dataclass(frozen=True, kw_only=True)
class BNNAgreement:
    """Theorem 3, first part, for one kind of BNN: sampled directly, and as an ENN.

    Attributes:
        bnn: which BNN, a name in `experiments.bnns.BNNS`.
        tau: number of inputs of a joint prediction.
        num_samples: samples of each side for the tables of joint probabilities.
        num_tested: samples of each side in a two-sample test.
        num_replicates: how many tests, each with samples of its own; together at most `num_samples`.
        num_permutations: permutations of a test by energy distance.
        num_projections: directions of a test by Kolmogorov-Smirnov distance along random directions.
    """

    bnn: str
    tau: int
    num_samples: int
    num_tested: int
    num_replicates: int
    num_permutations: int
    num_projections: int


@dataclass(frozen=True, kw_only=True)
class CounterExample:
    """Theorem 3, second part: an ENN that no BNN expresses.

    Attributes:
        in_dim: size of the input.
        shift: the parameter that multiplies the index.
        num_inputs: number of inputs through which linear functions are fitted.
        num_samples: sampled functions.
        num_lines: functions of one input that are kept for the figure.
    """

    in_dim: int
    shift: float
    num_inputs: int
    num_samples: int
    num_lines: int


@dataclass(frozen=True, kw_only=True)
class BNNsAsENNs:
    """Theorem 3: every BNN is an ENN, and not every ENN is a BNN."""

    bnns: tuple[str, ...] = (
        "ensemble",
        "ensemble+",
        "posterior samples",
        "dropout",
        "Bayes by backprop",
        "linear hypermodel",
        "diagonal hypermodel",
        "last-layer Laplace",
        "SWAG",
        "transport map",
    )
    tau: int = 3
    num_samples: int = 200_000
    num_tested: int = 1000
    num_replicates: int = 20
    num_permutations: int = 999
    num_projections: int = 10
    in_dim: int = 3
    shift: float = 0.7
    num_inputs: int = 8
    counterexample_samples: int = 100_000
    num_lines: int = 8

    def units(self) -> Mapping[str, BNNAgreement | CounterExample]:
        """Return one run per kind of BNN, and the counter-example."""
        agreements = {
            bnn.lower().replace(" ", "_").replace("+", "_plus"): unit_of(BNNAgreement, self, bnn=bnn)
            for bnn in self.bnns
        }
        counter_example = unit_of(CounterExample, self, num_samples=self.counterexample_samples)
        return {**agreements, "counterexample": counter_example}


LEVEL = 0.001
"""How often a true statement may be rejected, over all tests of a claim together."""


def _uniform(rows: Rows) -> Measurement:
    """Return the p-value of the hypothesis that the p-values of repetitions are uniform."""
    return Measurement(uniformity([row["p"] for row in where(rows, kind="replicate", enn="right", test="energy")]))


def _over_theory(kind: str) -> Exact:
    """Return a sampled number of the counter-example over what the theory says."""
    chosen = select(kind=kind, model="ENN")
    return Exact(
        lambda row: row["sampled"] / row["exact"], chosen, error=lambda row: row["standard_error"] / row["exact"]
    )


ARTIFACT = Artifact(
    title="BNNs as ENNs, and an ENN that is no BNN",
    label="thm:BNNvsENN",
    session="theory",
    tiers={
        "smoke": BNNsAsENNs(
            bnns=("ensemble", "Bayes by backprop"),
            num_samples=2000,
            num_tested=200,
            num_replicates=8,
            num_permutations=199,
            num_projections=3,
            counterexample_samples=20_000,
        ),
        "laptop": BNNsAsENNs(num_samples=20_000, num_tested=400, num_replicates=10),
        "paper": BNNsAsENNs(),
    },
    seed=103,
    run="thm3:run",
    tolerances={
        "p": Tolerance(absolute=0.05),
        "difference": Tolerance(absolute=1e-05),
        "bnn_log_prob": Tolerance(absolute=0.0001),
        "bnn_error": Tolerance(absolute=0.0001),
        "enn_log_prob": Tolerance(absolute=0.01),
        "enn_error": Tolerance(absolute=0.001),
        "redrawn_log_prob": Tolerance(absolute=0.01),
        "exact": Tolerance(relative=1e-06),
        "sampled": Tolerance(absolute=1e-06, relative=0.01),
        "standard_error": Tolerance(absolute=1e-06, relative=0.01),
        "x": Tolerance(absolute=1e-06),
        "y": Tolerance(absolute=0.0001),
    },
    minutes={"smoke": 0.2, "laptop": 0.7, "paper": 2},
    data="simulated networks and samples",
    exact=True,
    caption=(
        "(a) p-values of tests that compare a BNN with its ENN, and with two wrong ones; the dashed line is the "
        "level of the claims. (b) Log-probabilities of labels under both. (c) Functions of the counterexample and "
        "of BNNs on a linear base."
    ),
    place="Appendix C",
    claims=(
        Claim(
            "thm3-exact-outputs",
            "The ENN of a finite BNN (an ensemble, posterior samples) says what the BNN says, index by particle.",
            "largest difference of an output",
            Exact("difference", select(kind="exact", quantity="outputs")),
            equals(0, tolerance=1e-05),
            location="Section 3.2, Theorem 3",
        ),
        Claim(
            "thm3-exact-tables",
            "The joint predictive distribution of a finite BNN and that of its ENN are equal.",
            "largest difference of a joint probability",
            Exact("difference", select(kind="exact", quantity="joint probabilities")),
            equals(0, tolerance=1e-06),
            location="Section 3.2, Theorem 3",
        ),
        Claim(
            "thm3-samples",
            "For every kind of BNN, joint outputs sampled directly and from its ENN have one distribution.",
            "smallest p-value of two-sample tests, adjusted for their number",
            PValue(select(kind="combined", enn="right")),
            at_least(LEVEL),
            location="Section 3.2, Theorem 3, Eq. (3)",
        ),
        Claim(
            "thm3-uniform",
            "Repeated with other samples the tests give uniform p-values, as they must for equal distributions.",
            "p-value of uniformity",
            _uniform,
            at_least(LEVEL),
            location="Section 3.2, Theorem 3, Eq. (3)",
        ),
        Claim(
            "thm3-log-probs",
            "For every kind of BNN, the joint log-probabilities of all combinations of labels agree.",
            "smallest p-value of exact tests by random signs, adjusted for their number",
            PValue(select(kind="table")),
            at_least(LEVEL),
            location="Section 3.2, Theorem 3, Eq. (2)",
        ),
        Claim(
            "thm3-power-joint",
            "The tests can fail: with an index redrawn for each input, which keeps all marginals, they reject.",
            "largest p-value, adjusted for their number",
            PValue(select(kind="combined", enn="index redrawn", test="energy"), "largest"),
            at_most(LEVEL),
            location="Ours, a control",
        ),
        Claim(
            "thm3-power-width",
            "The tests can fail: with a spread that is 30 percent too large they reject.",
            "largest p-value, adjusted for their number",
            PValue(select(kind="combined", enn="too wide", test="energy"), "largest"),
            at_most(LEVEL),
            location="Ours, a control",
        ),
        Claim(
            "thm3-defined",
            "The ENN of the counter-example is defined with respect to the linear base: without shift it is it.",
            "largest difference of an output from the base network",
            Exact("sampled", select(kind="difference from the base without shift")),
            equals(0, tolerance=1e-06),
        ),
        Claim(
            "thm3-bnns-at-zero",
            "Every BNN on the linear base says zero at x = 0.",
            "largest output there of four kinds of BNN",
            Exact("sampled", select(kind="largest at zero", model=lambda model: model != "ENN")),
            equals(0, tolerance=0),
        ),
        Claim(
            "thm3-enn-at-zero",
            "The ENN of the counter-example has the variance of its shift at x = 0.",
            "sampled variance over the square of the shift",
            _over_theory("variance at zero"),
            equals(1, tolerance=0.05),
        ),
        Claim(
            "thm3-residual",
            "Even the nearest linear functions miss the functions of the ENN, by what the theory says.",
            "sampled mean squared residual over the expected one",
            _over_theory("residual of linear fits"),
            equals(1, tolerance=0.05),
            location="Appendix C (the number is ours)",
        ),
        Claim(
            "thm3-bnn-residual",
            "Linear functions do not miss the functions of a BNN on the linear base.",
            "largest mean squared residual",
            Exact("sampled", select(kind="residual of linear fits", model=lambda model: model != "ENN")),
            equals(0, tolerance=1e-09),
        ),
    ),
)

_BLUE, _RED = AGENTS["epinet"].color, AGENTS["ensemble"].color
_TESTS: dict[str, dict[str, Any]] = {
    "right": {"marker": "o", "color": _BLUE, "markerfacecolor": "none", "label": "its ENN"},
    "index redrawn": {"marker": "x", "color": _RED, "label": "wrong: index redrawn per input"},
    "too wide": {"marker": "+", "color": INK, "label": "wrong: spread 30 % too large"},
}
_OFFSETS = {"right": 0.0, "index redrawn": 0.22, "too wide": -0.22}


def _draw_tests(ax: Axes, rows: Rows) -> None:
    """Draw the p-value of each replicate, a line per BNN."""
    bnns = list(dict.fromkeys(row["bnn"] for row in rows if "bnn" in row))
    chosen = [row for row in rows if row["kind"] == "replicate" and row["test"] == "energy"]
    for enn, look in _TESTS.items():
        mine = [row for row in chosen if row["enn"] == enn]
        heights = [bnns.index(row["bnn"]) + _OFFSETS[enn] for row in mine]
        ax.plot([row["p"] for row in mine], heights, linestyle="", markersize=4, markeredgewidth=0.9, **look)
    ax.axvline(LEVEL, color=INK, linewidth=1.0, linestyle="--")
    ax.set(xscale="log", ylim=(len(bnns) - 0.5, -0.5))
    ax.set_yticks(range(len(bnns)), bnns)
    ax.grid(visible=False, axis="y")
    for edge in range(1, len(bnns)):
        ax.axhline(edge - 0.5, color="#e2e2e2", linewidth=0.6)
    ax.set_title("a  two-sample tests")
    ax.set_xlabel("p-value of each repetition")


def _draw_tables(ax: Axes, rows: Rows) -> None:
    """Draw the joint log-probabilities of the ENNs against those of the BNNs."""
    cells = [row for row in rows if row["kind"] == "cell"]
    direct = [row["bnn_log_prob"] for row in cells]
    ends = [min(direct), max(direct)]
    ax.plot(ends, ends, color=INK, linewidth=0.8, zorder=1)
    looks = {"redrawn_log_prob": _TESTS["index redrawn"], "enn_log_prob": _TESTS["right"]}
    for column, look in looks.items():
        values = [row[column] for row in cells]
        ax.plot(direct, values, linestyle="", markersize=3, markeredgewidth=0.7, **{**look, "label": None})
    ax.set_title("b  log-probabilities")
    ax.set_xlabel("BNN itself, nats")
    ax.set_ylabel("ENN, nats", labelpad=1)


def _draw_lines(ax: Axes, rows: Rows) -> None:
    """Draw sampled functions of the counter-example."""
    looks: dict[str, dict[str, Any]] = {
        "ENN": {"color": _BLUE, "linestyle": "-", "label": "ENN $\\theta^T x + \\theta'' z$"},
        "Bayes by backprop": {"color": MUTED, "linestyle": "--", "label": "BNN $\\hat\\theta^T x$"},
    }
    for model, look in looks.items():
        mine = [row for row in rows if row["kind"] == "line" and row["model"] == model]
        for line in sorted({row["line"] for row in mine}):
            points = [row for row in mine if row["line"] == line]
            named = look if line == 0 else {**look, "label": None}
            ax.plot([row["x"] for row in points], [row["y"] for row in points], linewidth=1.0, **named)
    ax.plot([0], [0], marker="o", color=INK, markersize=5, zorder=4)
    ax.set_title("c  an ENN that is no BNN")
    ax.set_xlabel("$x_1$")
    ax.set_ylabel("sampled function", labelpad=1)
    ax.legend(loc="upper left", handlelength=1.8, borderaxespad=0.2, fontsize=7)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 3.2))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _draw_tests(left, rows)
    _draw_tables(middle, rows)
    _draw_lines(right, rows)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, columnspacing=1.2, handletextpad=0.3)
    return figure
