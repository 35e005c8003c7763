"""What the image figures share: one protocol per data set, and losses over a cost with standard errors over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ..artifact import Artifact, Tolerance
from ..claims import (
    Claim,
    Difference,
    Measure,
    Ratio,
    RelativeChange,
    Rule,
    Select,
    at_least,
    at_most,
    equals,
    select,
)
from ..configs import Config
from ..configs.image_paper import full_protocol
from ..configs.images import ImageStudy, Protocol, small
from ..stats import (
    LARGEST,
    SEEDS,
    SMALLEST,
    UNKNOWN,
    Design,
    Each,
    Extreme,
    Measurement,
    Paired,
    Rows,
    values_of,
    where,
)
from ..style import AGENTS, add_legend

METRICS = {"error": "classification error", "marginal": "marginal log-loss", "joint": "joint log-loss, $\\tau = 10$"}
COSTS = {"parameters": "parameters", "flops": "FLOPs of a prediction"}
NUM_SAMPLES = 1000

# The numbers of indices that the paper evaluates single-model baselines at.
PAPER_COUNTS = {"dropout": 10, "sngp": 10}

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


def banked(from_scratch: Artifact, *, config: Config, minutes: float, **fields: Any) -> Artifact:
    """Return an image figure that reads a shipped bank at tier `laptop`.

    Args:
        from_scratch: the figure at the other tiers, and of other data sets and presets.
        config: what is computed from the bank.
        minutes: how long that takes on two cores.
        fields: of the artifact, where they are not those of `from_scratch`.
    """
    shared: dict[str, Any] = {
        "tiers": {**from_scratch.tiers, "laptop": config},
        "minutes": {**from_scratch.minutes, "laptop": minutes},
        "from_scratch": from_scratch,
        "groups": "",
        "plan": "",
        "reads_inputs": False,
    }
    return replace(from_scratch, **{**shared, **fields})


def shown_at(rows: Rows, counts: Mapping[str, int]) -> Rows:
    """Return the rows at the figures' number of indices, or at an agent's own; exact rows are always shown."""
    return [row for row in rows if row["exact"] or row["num_samples"] == counts.get(row["agent"], NUM_SAMPLES)]


def sizes_of(rows: Rows, agent: str) -> list[int]:
    """Return the sizes that an agent has, in increasing order."""
    return sorted(values_of(where(rows, agent=agent), "size"))


def label_cifar_sizes(ax: Axes) -> None:
    """Make the axis of parameters logarithmic, with labels for CIFAR's ResNets and their ensembles."""
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks([3e5, 1e6, 3e6], ["0.3 M", "1 M", "3 M"])


def mean_of(rows: Rows, metric: str, **wanted: Any) -> Measurement:
    """Return the mean of a metric over seeds, of the rows that have these values."""
    return SEEDS.mean(where(rows, **wanted), metric)


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
    draw_row(axes, shown_at(rows, {}), agents, cost)
    add_legend(figure, axes[2])
    return figure


def of(agent: str, *, size: Extreme = SMALLEST, indices: int = NUM_SAMPLES, **wanted: Any) -> Select:
    """Return an agent's smallest or largest variant with this many indices, if it needs any."""
    return select(agent=agent, size=size, indices=indices, **wanted)


EPINET = of("epinet")
"""The epinet on the smallest base network."""


SIZES = Paired(within=("size",), of_ratios=True)
"""Seeds, each averaged over networks of all sizes."""


_SCALING: Mapping[str, tuple[str, Rule]] = {
    "ensemble": (
        "The epinet on the smallest network predicts jointly better than the largest ensemble of it.",
        at_most(0),
    ),
    "base": ("The epinet predicts jointly better than its base network.", at_most(0)),
    "size": ("The epinet has less than twice the parameters of its base network.", at_most(2)),
    "error": ("The epinet leaves the classification error of networks as it is.", equals(0, tolerance=0.1)),
    "marginal": ("The epinet leaves the marginal log-loss of networks as it is.", equals(0, tolerance=0.1)),
    "growth": ("Ensembles gain more in joint log-loss by more particles than networks by more layers.", at_most(0)),
    "larger": ("Larger networks predict marginals better.", at_most(0)),
    "ensemble-marginal": (
        "In marginal log-loss, the largest ensemble does not reach the largest network.",
        at_least(0),
    ),
}
"""What the paper says of base networks, ensembles and epinets, with the rules, whatever they are trained on."""


def scaling_claims_of(artifact: str, measures: Mapping[str, tuple[str, Measure]]) -> tuple[Claim, ...]:
    """Return the paper's claims about base networks, ensembles and epinets.

    Args:
        artifact: id of the figure.
        measures: for each claim what is measured, in words, and the measure.
    """
    return tuple(
        Claim(f"{artifact}-{name}", statement, *measures[name], rule) for name, (statement, rule) in _SCALING.items()
    )


def scaling_claims(
    artifact: str,
    *,
    over: Design = SEEDS,
    alike: Design = SIZES,
    runs: str = "seed",
    epinet: Mapping[str, Any] | None = None,
    **shown: Any,
) -> tuple[Claim, ...]:
    """Return the claims about base networks, ensembles and epinets on one data set.

    Args:
        artifact: id of the figure.
        over: what means are over.
        alike: the same, where epinets on networks of all sizes are compared with these networks.
        runs: column of the runs that have one number of parameters each.
        epinet: which epinets are judged, if there are several.
        shown: which rows of all agents are judged, if there are several.
    """
    resnet, ensemble = of("resnet", **shown), of("ensemble", size=LARGEST, **shown)
    chosen = {**shown, **(epinet or {})}
    own = of("epinet", **chosen)
    changes = (select(agent="epinet", indices=NUM_SAMPLES, **chosen), select(agent="resnet", **shown), alike)

    def growth(rows: Rows) -> Measurement:
        """Return the change in joint loss from the smallest to the largest ensemble, minus that of the base network."""
        found = []
        for agent in ("ensemble", "resnet"):
            large, small = (of(agent, size=size, **shown)(rows) for size in (LARGEST, SMALLEST))
            if not large or large == small:
                return UNKNOWN
            found.append(over.difference(large, small, "joint", "joint"))
        return Measurement(found[0].value - found[1].value, math.hypot(*(one.standard_error for one in found)))

    largest = of("resnet", size=LARGEST, **shown)
    return scaling_claims_of(
        artifact,
        {
            "ensemble": ("joint log-loss, epinet - largest ensemble", Difference("joint", own, ensemble, over)),
            "base": ("joint log-loss, epinet - base", Difference("joint", own, resnet, over)),
            "size": ("parameters, epinet / base", Ratio("parameters", own, resnet, Each((runs,)))),
            "error": ("relative difference in error, mean over sizes", RelativeChange("error", *changes)),
            "marginal": (
                "relative difference in marginal log-loss, mean over sizes",
                RelativeChange("marginal", *changes),
            ),
            "growth": ("change in joint log-loss from smallest to largest, ensemble - base", growth),
            "larger": (
                "marginal log-loss, largest - smallest base",
                Difference("marginal", largest, resnet, over),
            ),
            "ensemble-marginal": (
                "marginal log-loss, largest ensemble - largest base",
                Difference("marginal", ensemble, largest, over),
            ),
        },
    )
