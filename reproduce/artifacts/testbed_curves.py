"""Beyond the paper: divergence over the number of labels and of indices, and the error of its two estimators."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Ratio, Select, at_least, select
from ..configs.testbed import Curves, variant_of
from ..stats import LARGEST, PROBLEMS, SMALLEST, Extreme, Paired, Rows
from ..style import AGENTS
from ._testbed import labels_of, mean_of


def _with(num_samples: Extreme) -> Select:
    """Return the epinets with the fewest or the most indices."""
    return select(agent="epinet", curve="indices", tau=10, num_samples=num_samples)


ARTIFACT = Artifact(
    title="Divergence over the number of labels and of indices, by two estimators",
    session="testbed",
    order=2,
    tiers={
        "smoke": Curves(
            variants=(variant_of("epinet"),), problems=(16, 17), taus=(1, 10), num_samples=(10, 100), num_batches=20
        ),
        "laptop": Curves(
            variants=(
                variant_of("epinet"),
                variant_of("ensemble", num_particles=10),
                variant_of("ensemble+", num_particles=10),
            ),
            problems=(91, 92),
            num_samples=(10, 100, 1000),
            num_batches=200,
        ),
        "paper": Curves(),
    },
    seed=51,
    run="testbed:curves",
    groups="groups",
    tolerances={"mean": Tolerance(absolute=0.1, relative=0.1), "error": Tolerance(absolute=0.05, relative=0.2)},
    minutes={"smoke": 0.3, "laptop": 1, "paper": 40},
    data="problems with 10 inputs",
    caption=(
        "Left, over the number of labels. Middle, over the number of indices, where the index has to be "
        "sampled. Right, each mark is a problem."
    ),
    claims=(
        Claim(
            "testbed_curves-estimator",
            "The exact estimator of the divergence varies less than the sampled one.",
            "standard error at ten labels, sampled / exact, mean over runs",
            Ratio(
                "error",
                select(curve="labels, sampled", tau=10),
                select(curve="labels, exact", tau=10),
                Paired(by=("label", "problem"), of_ratios=True),
            ),
            at_least(1),
        ),
        Claim(
            "testbed_curves-indices",
            "With more indices the epinet's joint divergence falls.",
            "joint KL, fewest - most indices",
            Difference("mean", _with(SMALLEST), _with(LARGEST), PROBLEMS),
            at_least(0),
        ),
    ),
)


def _labels(rows: Rows) -> list[tuple[str, str, str]]:
    """Return label, agent and words for each variant; where an agent has several, the words tell its size."""
    found = []
    for agent in AGENTS:
        own = labels_of(rows, agent)
        for label in own:
            size = label.removeprefix(f"{agent}-num_particles=").split("-")[0]
            found.append((label, agent, f"{agent} {size}" if "num_particles=" in label else agent))
    return found


def _fill(rows: Rows, agent: str, label: str) -> str:
    """Return the color inside of a marker: none for all but the largest where an agent has several sizes."""
    return AGENTS[agent].color if label == labels_of(rows, agent)[-1] else "white"


def _draw_curves(ax: Axes, rows: Rows, over: str) -> None:
    """Draw each agent's joint divergence over a column."""
    for label, agent, words in _labels(rows):
        own = [row for row in rows if row["label"] == label]
        xs = sorted({row[over] for row in own})
        points = [mean_of([row for row in own if row[over] == x], label, "mean") for x in xs]
        bars = [0.0 if math.isnan(error) else error for _, error in points]
        look = AGENTS[agent].line(label=words, markersize=3.5, markerfacecolor=_fill(rows, agent, label))
        ax.errorbar(xs, [mean for mean, _ in points], yerr=bars, **look)
    ax.set_xscale("log")


def _joined(rows: Rows) -> list[Mapping[str, Any]]:
    """Return exact values where there are any, sampled ones for more labels."""
    exact = [row for row in rows if row["curve"] == "labels, exact"]
    most = max(row["tau"] for row in exact)
    return [*exact, *(row for row in rows if row["curve"] == "labels, sampled" and row["tau"] > most)]


def _draw_errors(ax: Axes, rows: Rows) -> None:
    """Draw the standard error of the sampled estimator over that of the exact one, at ten labels."""
    names = []
    for label, agent, words in _labels(rows):
        errors = {
            curve: [row["error"] for row in rows if (row["label"], row["curve"], row["tau"]) == (label, curve, 10)]
            for curve in ("labels, exact", "labels, sampled")
        }
        ratios = [s / e for s, e in zip(errors["labels, sampled"], errors["labels, exact"], strict=True) if e > 0]
        look = AGENTS[agent].line(linestyle="", markersize=4, markerfacecolor=_fill(rows, agent, label))
        ax.plot(ratios, [len(names)] * len(ratios), **look)
        names.append(words)
    ax.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(names)), names, fontsize=7)
    ax.invert_yaxis()
    ax.set_xlabel("s.e. of sampled / exact, $\\tau = 10$")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 3.3))
    labels, indices, errors = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    _draw_curves(labels, _joined(rows), "tau")
    labels.set_yscale("log")
    labels.set_xlabel("number of labels $\\tau$")
    labels.set_ylabel("joint KL")
    _draw_curves(indices, [row for row in rows if row["curve"] == "indices" and row["tau"] == 10], "num_samples")
    indices.set_xlabel("number of indices $M$")
    indices.set_ylabel("joint KL, $\\tau = 10$")
    _draw_errors(errors, rows)
    handles, names = labels.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=5)
    return figure
