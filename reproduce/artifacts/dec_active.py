"""Beyond the paper: accuracy over the number of labels, and the labels that a level of accuracy takes."""

import math
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Measure, at_most
from ..configs.decisions import ActiveLearning
from ..stats import SEEDS, UNKNOWN, Measurement, Rows, mean_over, where
from ..style import AGENTS, INK, MUTED, Look


def fewer(acquisition: str, other: str = "uniform") -> Measure:
    """Compare the labels that two rules of acquisition need; undecided where no run reaches the level."""

    def measure(rows: Rows) -> Measurement:
        own, others = (where(rows, row="needed", acquisition=name) for name in (acquisition, other))
        if all(row["labels"] > row["budget"] for row in (*own, *others)):
            return UNKNOWN
        # A run that never gets there counts with its budget.
        return Difference(lambda row: min(row["labels"], row["budget"]), lambda _: own, lambda _: others, SEEDS)(rows)

    return measure


# Half of the labels of a round: fewer make no difference to whoever asks for them.
_MARGIN = 5

_TWENTY = ActiveLearning(num_runs=20, num_rounds=9, num_steps=300, num_pool=400, num_targets=25, level=0.8)

ARTIFACT = Artifact(
    title="Labels that an epinet needs to read digits, by how they are chosen",
    session="decisions",
    order=1,
    tiers={
        "smoke": ActiveLearning(
            acquisitions=("uniform", "bald"),
            num_runs=2,
            num_rounds=2,
            num_steps=50,
            num_samples=10,
            num_pool=200,
            num_targets=10,
            level=0.5,
        ),
        "laptop": replace(_TWENTY, num_runs=8),
        "paper": _TWENTY,
    },
    seed=202,
    run="active:run",
    groups="groups",
    tolerances={"accuracy": Tolerance(absolute=0.15), "labels": Tolerance(absolute=60)},
    minutes={"smoke": 1, "laptop": 2, "paper": 5},
    data="scikit-learn's digits",
    exact=True,
    caption=(
        "Left, means over runs, and the target accuracy. Right, the labels needed; a run that misses the target "
        "counts its budget."
    ),
    claims=(
        Claim(
            "dec_active-variance",
            "With labels chosen by the variance of class probabilities, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, variance minus uniform; at most the budget",
            fewer("variance"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-entropy",
            "With labels chosen by entropy, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, entropy minus uniform; at most the budget",
            fewer("entropy"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-margin",
            "With labels chosen by the margin, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, margin minus uniform; at most the budget",
            fewer("margin"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-bald",
            "With labels chosen by BALD, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, bald minus uniform; at most the budget",
            fewer("bald"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-batch-bald",
            "With labels chosen by BatchBALD, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, batch-bald minus uniform; at most the budget",
            fewer("batch-bald"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-epig",
            "With labels chosen by EPIG, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, epig minus uniform; at most the budget",
            fewer("epig"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-joint-loss",
            "With labels chosen by the expected joint log-loss, an epinet needs fewer than with uniform ones.",
            "labels up to the accuracy, joint-loss minus uniform; at most the budget",
            fewer("joint-loss"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_active-batch",
            "With batches chosen by BatchBALD, an epinet needs fewer labels than with those of BALD.",
            "labels up to the accuracy, batch-bald minus bald; at most the budget",
            fewer("batch-bald", "bald"),
            at_most(0, margin=_MARGIN),
        ),
    ),
)


# What joint predictions tell in the epinet's blue, what marginals tell in black, and what none tells in gray.
_BLUE = AGENTS["epinet"].color
_LOOKS = {
    "uniform": Look(color=MUTED, marker="x", linestyle=":", label="uniform"),
    "entropy": Look(color=INK, marker="v", linestyle="--", label="entropy"),
    "margin": Look(color=INK, marker="^", linestyle="-.", label="margin"),
    "variance": Look(color=_BLUE, marker="D", linestyle="--", label="variance"),
    "joint-loss": Look(color=_BLUE, marker="s", linestyle=":", label="joint log-loss"),
    "bald": Look(color=_BLUE, marker="o", linestyle="-", label="BALD"),
    "batch-bald": Look(color=_BLUE, marker="*", linestyle="-.", label="BatchBALD"),
    "epig": Look(color=_BLUE, marker="P", linestyle=(0, (1, 1)), label="EPIG"),
}


def _draw_curves(ax: Axes, rows: Rows, names: Sequence[str]) -> None:
    """Draw the mean accuracy of each rule."""
    for name in names:
        own = [row for row in rows if row["acquisition"] == name and row["row"] == "round"]
        counts = sorted({row["labels"] for row in own})
        points = [mean_over([row["accuracy"] for row in own if row["labels"] == count]) for count in counts]
        ax.plot(counts, [mean for mean, _ in points], **_LOOKS[name].line(markersize=3.5, linewidth=1.2))
    level = rows[0]["level"]
    ax.axhline(level, color=INK, linewidth=0.6)
    ax.set_xlabel("labels")
    ax.set_ylabel("accuracy on held-out data")


def _draw_needed(ax: Axes, rows: Rows, names: Sequence[str]) -> None:
    """Draw the labels that each rule needs, with standard errors over runs; a run that fails counts its budget."""
    for place, name in enumerate(names):
        own = [row for row in rows if row["acquisition"] == name and row["row"] == "needed"]
        mean, error = mean_over([min(row["labels"], row["budget"]) for row in own])
        bar = 0.0 if math.isnan(error) else error
        look = _LOOKS[name].line(linestyle="", label=None)
        ax.errorbar([mean], [place], xerr=[bar], capsize=2, markersize=5, **look)
        missed = sum(row["labels"] > row["budget"] for row in own)
        if missed:
            ax.annotate(f"{missed} of {len(own)} not", (mean, place), (0, 5), textcoords="offset points", fontsize=6)
    ax.set_yticks(range(len(names)), [_LOOKS[name].label for name in names])
    ax.invert_yaxis()
    ax.set_xlabel(f"labels up to {100 * rows[0]['level']:g} percent")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    names = [name for name in _LOOKS if any(row["acquisition"] == name for row in rows)]
    figure = Figure(figsize=(6.75, 3.1))
    curves, needed = figure.subplots(1, 2, width_ratios=(1.3, 1))
    _draw_curves(curves, rows, names)
    curves.legend(loc="lower right", fontsize=7)
    _draw_needed(needed, rows, names)
    return figure
