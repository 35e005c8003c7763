"""What the image figures share: one protocol per data set, and losses over a cost with standard errors over seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..configs.image_paper import full_protocol
from ..configs.images import ImageStudy, Protocol, small
from ..over_seeds import mean_of, shown_at, sizes_of
from ..style import AGENTS, add_legend

METRICS = {"error": "classification error", "marginal": "marginal log-loss", "joint": "joint log-loss, $\\tau = 10$"}
COSTS = {"parameters": "parameters", "flops": "FLOPs of a prediction"}
NUM_SAMPLES = 1000

# The numbers of indices that the paper evaluates single-model baselines at.
PAPER_COUNTS = {"dropout": 10, "sngp": 10}

Rows = Sequence[Mapping[str, Any]]

TRAINED = ("bases", "ensembles", "epinets")
"""The parts of a protocol that most figures show."""

SCALED = ("resnet", "ensemble", "epinet")
"""Their agents."""

LOSSES: Mapping[str, Tolerance] = {
    "error": Tolerance(absolute=0.02),
    # Where a chosen temperature is the next one of the grid, both losses are others.
    "marginal": Tolerance(absolute=0.15, relative=0.1),
    "joint": Tolerance(absolute=0.5, relative=0.3),
    "error_error": Tolerance(absolute=0.01),
    "marginal_error": Tolerance(absolute=0.05),
    "joint_error": Tolerance(absolute=0.3),
    "temperature": Tolerance(absolute=0.3),
    "flops": Tolerance(relative=0.2),
}

_SEEDS = {"imagenet": 2, "cifar10": 10, "cifar100": 12}


def image_artifact(*, protocol: Protocol, dataset: str, parts: tuple[str, ...], **fields: Any) -> Artifact:
    """Return an image figure.

    Args:
        protocol: what is trained at tier `laptop`, and at tier `smoke` in miniature.
        dataset: the paper's data set, whose protocol is that of tier `paper`; all figures of one share their records.
        parts: the parts of the protocol that it shows.
        fields: of the artifact.
    """
    protocols = {"smoke": small(protocol), "laptop": protocol, "paper": full_protocol(dataset)}
    tiers = {tier: ImageStudy(protocol=own, parts=parts, full=dataset) for tier, own in protocols.items()}
    shared: dict[str, Any] = {
        "session": "imagenet" if dataset == "imagenet" else "cifar",
        "seed": _SEEDS[dataset],
        "tiers": tiers,
        "run": "images:run",
        "groups": "groups",
        "plan": "plan",
        "records": dataset,
        "reads_inputs": True,
        "hardware": "CPU; paper: accelerators",
        "tolerances": LOSSES,
    }
    return Artifact(**{**shared, **fields})


def draw_agents(ax: Axes, rows: Rows, agents: Sequence[str], metric: str, cost: str) -> None:
    """Draw a metric over a cost; the sizes of an agent are joined by a line."""
    for agent in agents:
        points = []
        for size in sizes_of(rows, agent):
            mean, error = mean_of(rows, metric, agent=agent, size=size)
            place, _ = mean_of(rows, cost, agent=agent, size=size)
            points.append((place, mean, 0.0 if math.isnan(error) else error))
        if points:
            xs, means, bars = zip(*sorted(points), strict=True)
            ax.errorbar(xs, means, yerr=bars, capsize=2, markersize=4.5, **AGENTS[agent].line())
    ax.set_xscale("log")


def draw_row(axes: Sequence[Axes], rows: Rows, agents: Sequence[str], cost: str) -> None:
    """Draw the three losses side by side."""
    for ax, (metric, words) in zip(axes, METRICS.items(), strict=True):
        draw_agents(ax, rows, agents, metric, cost)
        ax.set_xlabel(COSTS[cost])
        ax.set_ylabel(words)
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])


def scaling_figure(rows: Rows, agents: Sequence[str], cost: str) -> Figure:
    """Draw one row of three panels, at the figures' number of indices."""
    figure = Figure(figsize=(6.75, 2.6))
    axes = figure.subplots(1, 3)
    draw_row(axes, shown_at(rows, {}, NUM_SAMPLES), agents, cost)
    add_legend(figure, axes[2])
    return figure
