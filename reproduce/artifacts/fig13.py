"""Figure 13: epinets with more and more indices, against the operations of a prediction."""

import math
from collections.abc import Callable

from matplotlib.figure import Figure

from ..claims import Claim, Difference, Select, at_least, at_most, select
from ..configs.imagenet import NETWORKS, BankStudy
from ..configs.images import PAIRS
from ..stats import SEEDS, SMALLEST, Paired
from ..style import AGENTS, add_legend
from . import _imagenet
from ._images import COSTS, METRICS, Rows, image_artifact, mean_of, of, sizes_of


def _with(num_samples: int) -> Select:
    """Return the epinets on the smallest base with this many indices."""
    return select(agent="epinet", size=SMALLEST, num_samples=num_samples)


def _claims(epinet: Callable[[int], Select], base: Select, over: Paired) -> tuple[Claim, ...]:
    """Return the claims.

    Args:
        epinet: the rows of the epinet with a number of indices.
        base: the rows of its base network.
        over: what means are over.
    """
    return (
        Claim(
            "fig13-few",
            "Even ten indices improve on the base network.",
            "joint log-loss, epinet with M = 10 - base",
            Difference("joint", epinet(10), base, over),
            at_most(0),
        ),
        Claim(
            "fig13-more",
            "Joint log-loss falls with the number of indices.",
            "joint log-loss, M = 1000 - M = 10",
            Difference("joint", epinet(1000), epinet(10), over),
            at_most(0),
        ),
        Claim(
            "fig13-beyond",
            "It keeps falling beyond a thousand.",
            "joint log-loss, M = 3000 - M = 1000",
            Difference("joint", epinet(3000), epinet(1000), over),
            at_most(0),
        ),
        Claim(
            "fig13-marginal",
            "In marginal log-loss, no number of indices is better than the base network.",
            "marginal log-loss, M = 3000 - base",
            Difference("marginal", epinet(3000), base, over),
            at_least(0),
        ),
    )


def _draw_from_scratch(rows: Rows) -> Figure:
    """Draw one curve per base network, which begins at the network alone."""
    figure = Figure(figsize=(6.75, 2.7))
    axes = figure.subplots(1, 3)
    sizes = sizes_of(rows, "epinet")
    counts = sorted({row["num_samples"] for row in rows if row["agent"] == "epinet"})
    for ax, (metric, words) in zip(axes, METRICS.items(), strict=True):
        for rank, size in enumerate(sizes):
            shade = 0.35 + 0.65 * rank / max(len(sizes) - 1, 1)
            points = [mean_of(rows, metric, agent="epinet", size=size, num_samples=count) for count in counts]
            places = [mean_of(rows, "flops", agent="epinet", size=size, num_samples=count)[0] for count in counts]
            bars = [0.0 if math.isnan(error) else error for _, error in points]
            look = AGENTS["epinet"].line(label=f"epinet on {size}", alpha=shade, markersize=3.5)
            ax.errorbar(places, [mean for mean, _ in points], yerr=bars, **look)
            mean, _ = mean_of(rows, metric, agent="resnet", size=size)
            place, _ = mean_of(rows, "flops", agent="resnet", size=size)
            label = AGENTS["resnet"].label if rank == 0 else None
            ax.plot([place], [mean], **AGENTS["resnet"].line(linestyle="", label=label))
        ax.set_xscale("log")
        ax.set_xlabel(COSTS["flops"])
        ax.set_ylabel(words)
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[2])
    return figure


_FROM_SCRATCH = image_artifact(
    title="Epinets with more and more indices",
    label="fig:epi_compute_flops",
    protocol=PAIRS,
    dataset="imagenet",
    parts=("bases", "epinets"),
    minutes={"smoke": 0.5, "laptop": 0.1, "paper": 0},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption=(
        "A curve is the epinet on one base network, with more and more indices from left to right; crosses are the "
        "base networks alone."
    ),
    place="Appendix G.4, Figure 13",
    claims=_claims(_with, of("resnet"), SEEDS),
    draw=_draw_from_scratch,
)

ARTIFACT = _imagenet.bank_artifact(
    _FROM_SCRATCH,
    config=BankStudy(parts=("base", "epinet")),
    minutes=0.1,
    caption=(
        "A curve is the epinet on one network, at the temperature that was chosen for many index samples, with more"
        " and more of them from left to right; crosses are the networks alone."
    ),
    claims=_claims(
        lambda count: _imagenet.of("epinet", indices=None, num_samples=count), _imagenet.BASE, _imagenet.PER_BLOCK
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw one curve for each network of the bank, which begins at the network alone."""
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, 3)
    for ax, metric in zip(axes, METRICS, strict=True):
        for rank, network in enumerate(NETWORKS):
            curves = _imagenet.by(rows, "num_samples", _imagenet.of("epinet", network=network, indices=None))
            marker = "osDv^<>"[rank]
            look = {"marker": marker, "linestyle": "-", "alpha": 1 - 0.1 * rank, "label": _imagenet.NAMES[network]}
            _imagenet.draw_points(ax, curves, "flops", metric, **AGENTS["epinet"].line(**look))
            alone = [_imagenet.of("resnet", network=network)(rows)]
            label = AGENTS["resnet"].label if rank == 0 else None
            _imagenet.draw_points(ax, alone, "flops", metric, **AGENTS["resnet"].line(linestyle="", label=label))
    _imagenet.finish(axes, "flops")
    add_legend(figure, axes[2], columns=4)
    return figure
