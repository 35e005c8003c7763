"""What the ImageNet figures share that read the shipped bank: which rows are meant, claims, drawings over a cost."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FormatStrFormatter, LogLocator, NullLocator

from ..artifact import Artifact
from ..claims import Claim, Difference, Ratio, RelativeChange, Select, at_most, equals, select
from ..configs import Config
from ..stats import Each, Paired, Rows, values_of, where
from ..style import AGENTS, MUTED, add_legend
from ._images import COSTS, LOSSES, METRICS, NUM_SAMPLES, banked, scaling_claims_of

DATA = "seven public networks, stored outputs on 4,000 validation images of ImageNet, one seed per fold"
FIRST = "resnet50"
"""The network of the bank that the paper has, too: its smallest."""
LAST = "squeezenet1_1"
"""The smallest network of the bank, with the largest features."""

NAMES = {
    "resnet50": "ResNet-50",
    "efficientnet_lite0": "Lite0",
    "efficientnet_lite1": "Lite1",
    "efficientnet_lite2": "Lite2",
    "mobilenet_v2": "MobileNetV2",
    "mobilenet_v2_keras": "MobileNetV2 (Keras)",
    "squeezenet1_1": "SqueezeNet",
}
"""What the networks are called in figures."""

GROUPS = (
    (("squeezenet1_1",), "SqueezeNet", 5, "left"),
    (("mobilenet_v2", "mobilenet_v2_keras"), "MobileNetV2", 7, "left"),
    (("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"), "Lite0-2", -13, "center"),
    (("resnet50",), "ResNet-50", 8, "center"),
)
"""Networks that are close to one another, what is written at them, by how many points above, and how it is aligned."""

ALPHA = 0.2
"""The aleatoric share of the Pitman-Yor head in figures and claims; labels that never change cannot choose it."""

PER_BLOCK = Paired(by=("block",), of_ratios=True)
"""Blocks of test images."""

PER_NETWORK = Paired(by=("block",), within=("network",), of_ratios=True)
"""Blocks of test images; networks are averaged over first."""


def bank_artifact(from_scratch: Artifact, *, config: Config, minutes: float, **fields: Any) -> Artifact:
    """Return an ImageNet figure that reads the bank at tier `laptop`; arguments as of `banked`."""
    shared: dict[str, Any] = {"run": "imagenet:run", "data": DATA, "draws_config": False, "tolerances": LOSSES}
    return banked(from_scratch, config=config, minutes=minutes, **{**shared, **fields})


def of(agent: str, *, network: str | None = FIRST, indices: int | None = NUM_SAMPLES, **more: Any) -> Select:
    """Return an agent on a network, by default the paper's, at its chosen temperature; on all networks if None."""
    wanted = {"agent": agent, "tuned": True, **more}
    return select(**wanted, **({} if network is None else {"network": network}), indices=indices)


EPINET, BASE = of("epinet"), of("resnet")
ALL_EPINETS, ALL_BASES = of("epinet", network=None), of("resnet", network=None)
MIXED = select(agent="ensemble", tuned=True, members=7)
PITMAN_YOR = of("pitman-yor", alpha=ALPHA)

NOT_AT_HAND = select(agent="100 particles of one architecture")
"""What no bank has: a claim about it is not measured."""


def scaling_claims(artifact: str) -> tuple[Claim, ...]:
    """Return the paper's claims about base networks, ensembles and epinets, and ours."""
    smaller, larger = (of("resnet", network=f"efficientnet_lite{number}") for number in (0, 2))
    paper = scaling_claims_of(
        artifact,
        {
            "ensemble": (
                "joint log-loss, epinet - 100 particles of ResNet-50, which are not at hand",
                Difference("joint", EPINET, NOT_AT_HAND, PER_BLOCK),
            ),
            "base": ("joint log-loss, epinet - base, ResNet-50", Difference("joint", EPINET, BASE, PER_BLOCK)),
            "size": ("parameters, epinet / base, ResNet-50", Ratio("parameters", EPINET, BASE, Each(("block",)))),
            "error": ("relative difference in error, ResNet-50", RelativeChange("error", EPINET, BASE, PER_BLOCK)),
            "marginal": (
                "relative difference in marginal log-loss, ResNet-50",
                RelativeChange("marginal", EPINET, BASE, PER_BLOCK),
            ),
            "growth": (
                "change in joint log-loss, 100 particles of ResNet-50, which are not at hand, - ResNet-200",
                Difference("joint", NOT_AT_HAND, BASE, PER_BLOCK),
            ),
            "larger": (
                "marginal log-loss, EfficientNet-Lite2 - EfficientNet-Lite0",
                Difference("marginal", larger, smaller, PER_BLOCK),
            ),
            "ensemble-marginal": (
                "marginal log-loss, 100 particles of ResNet-50, which are not at hand, - ResNet-200",
                Difference("marginal", NOT_AT_HAND, BASE, PER_BLOCK),
            ),
        },
    )
    return (
        *paper,
        Claim(
            f"{artifact}-mixed",
            "The epinet on ResNet-50 predicts jointly better than an ensemble of seven architectures.",
            "joint log-loss, epinet on ResNet-50 - ensemble of all seven networks",
            Difference("joint", EPINET, MIXED, PER_BLOCK),
            at_most(0),
            location="beyond the paper: an ensemble of mixed architecture",
        ),
        Claim(
            f"{artifact}-base-all",
            "The epinet predicts jointly better than its base network, whichever the network.",
            "joint log-loss, epinet - base, mean over seven networks",
            Difference("joint", ALL_EPINETS, ALL_BASES, PER_NETWORK),
            at_most(0),
            location="beyond the paper: networks that it does not have",
        ),
        Claim(
            f"{artifact}-marginal-all",
            "With the paper's prior scale the epinet leaves the marginal log-loss of any network as it is.",
            "relative difference in marginal log-loss, mean over seven networks",
            RelativeChange("marginal", ALL_EPINETS, ALL_BASES, PER_NETWORK),
            equals(0, tolerance=0.1),
            location="beyond the paper: networks that it does not have",
        ),
        Claim(
            f"{artifact}-recommended",
            "A prior scale that is chosen on held-out images keeps the marginal log-loss of SqueezeNet, whose features "
            "are large.",
            "relative difference in marginal log-loss, chosen prior scale - base, SqueezeNet",
            RelativeChange("marginal", of("epinet, recommended", network=LAST), of("resnet", network=LAST), PER_BLOCK),
            equals(0, tolerance=0.1),
            location="beyond the paper",
        ),
        Claim(
            f"{artifact}-pitman-yor",
            "A Pitman-Yor head, which adds no parameters, predicts jointly better than the epinet.",
            f"joint log-loss, Pitman-Yor head (share {ALPHA}) - epinet, mean over seven networks",
            Difference("joint", of("pitman-yor", network=None, alpha=ALPHA), ALL_EPINETS, PER_NETWORK),
            at_most(0),
            location="beyond the paper",
        ),
        Claim(
            f"{artifact}-released",
            "The temperatures of the released networks predict jointly better than none.",
            "joint log-loss, base / 0.8 and epinet / 0.7 - temperature 1, ResNet-50",
            Difference(
                "joint",
                select(agent="epinet, released"),
                select(agent="epinet", network=FIRST, tuned=False, num_samples=NUM_SAMPLES),
                PER_BLOCK,
            ),
            at_most(0),
            location="beyond the paper",
        ),
        Claim(
            f"{artifact}-fitted-on",
            "Whether the epinet is fitted on held-out or on training-like images matters little.",
            "relative difference in joint log-loss, 1,000 training-like - 2,800 validation images, ResNet-50",
            RelativeChange("joint", of("epinet, training-like"), EPINET, PER_BLOCK),
            equals(0, tolerance=0.1),
            location="beyond the paper",
        ),
        Claim(
            f"{artifact}-untrained",
            "Training improves the joint predictions of the epinet.",
            "joint log-loss, epinet - the same without training, ResNet-50",
            Difference("joint", EPINET, of("epinet, untrained"), PER_BLOCK),
            at_most(0),
            location="beyond the paper",
        ),
    )


def point(rows: Rows, x: str, metric: str) -> tuple[float, float, float]:
    """Return the place, the mean and the standard error of rows of one agent."""
    mean, error = PER_BLOCK.mean(rows, metric)
    return float(rows[0][x]), mean, 0.0 if math.isnan(error) else error


def draw_points(ax: Axes, groups: Sequence[Rows], x: str, metric: str, **look: Any) -> None:
    """Draw a point with its error for each group of rows."""
    points = sorted(point(rows, x, metric) for rows in groups if rows)
    if points:
        places, means, bars = zip(*points, strict=True)
        ax.errorbar(places, means, yerr=bars, **{"capsize": 2, "markersize": 4.5, **look})


def by(rows: Rows, column: str, choice: Callable[[Rows], Rows]) -> list[Rows]:
    """Return chosen rows, a group for each value of a column."""
    chosen = choice(rows)
    return [where(chosen, **{column: value}) for value in values_of(chosen, column)]


def logarithmic(ax: Axes) -> None:
    """Make the horizontal axis logarithmic, with few labels."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.tick_params(axis="x", labelsize=7)


def finish(axes: Sequence[Axes], x: str) -> None:
    """Label the three panels; where values are far apart, their axis is logarithmic."""
    for ax, (_, words) in zip(axes, METRICS.items(), strict=True):
        logarithmic(ax)
        low, high = ax.get_ylim()
        if low <= 0 or high > 2 * low:
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
            ax.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            ax.yaxis.set_minor_locator(NullLocator())
        ax.set_xlabel(COSTS.get(x, x))
        ax.set_ylabel(words)


def name_networks(ax: Axes, rows: Rows, x: str, metric: str) -> None:
    """Write the names of the networks that have rows above or below their points."""
    for networks, name, above, align in GROUPS:
        own = [of("resnet", network=network)(rows) for network in networks]
        places = [point(group, x, metric) for group in own if group]
        if not places:
            continue
        # The geometric mean is in the middle of a logarithmic axis.
        middle = math.exp(sum(math.log(place) for place, _, _ in places) / len(places))
        end = (max if above > 0 else min)(mean for _, mean, _ in places)
        look = {"textcoords": "offset points", "ha": align, "fontsize": 6, "color": MUTED}
        ax.annotate(name, (middle, end), (0, above), **look)


def bank_scaling_figure(rows: Rows, x: str) -> Figure:
    """Draw the three losses of networks, their epinets and Pitman-Yor heads, and of mixed ensembles, over a cost."""
    figure = Figure(figsize=(6.75, 3.0))
    axes = figure.subplots(1, 3)
    plain = select(agent="epinet", tuned=False, num_samples=NUM_SAMPLES)
    for ax, metric in zip(axes, METRICS, strict=True):
        # In the first two panels the head is where its network is.
        heads = by(rows, "network", of("pitman-yor", network=None, alpha=ALPHA))
        draw_points(ax, heads, x, metric, **AGENTS["pitman-yor"].line(linestyle="", markersize=7, zorder=1))
        for agent, choice in (("resnet", ALL_BASES), ("epinet", ALL_EPINETS)):
            draw_points(ax, by(rows, "network", choice), x, metric, **AGENTS[agent].line(linestyle=""))
        look = AGENTS["epinet"].line(linestyle="", markerfacecolor="white", label="epinet, temperature 1", zorder=1)
        draw_points(ax, by(rows, "network", plain), x, metric, **look)
        ensembles = [BASE(rows), *by(rows, "members", of("ensemble", network=None))]
        draw_points(ax, ensembles, x, metric, **AGENTS["ensemble"].line(label="ensemble, mixed"))
        chosen = by(rows, "network", of("epinet, recommended", network=None))
        look = AGENTS["epinet"].line(marker="*", linestyle="", label="prior scale chosen", markersize=7)
        draw_points(ax, chosen, x, metric, **look)
        look = AGENTS["epinet"].line(marker="d", linestyle="", markerfacecolor="white", label="released temperatures")
        draw_points(ax, [select(agent="epinet, released")(rows)], x, metric, **look)
    name_networks(axes[0], rows, x, "error")
    finish(axes, x)
    add_legend(figure, axes[2], columns=4)
    return figure
