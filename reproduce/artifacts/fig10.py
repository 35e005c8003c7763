"""Figure 10: base networks, ensembles and epinets on CIFAR-10."""

from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, at_most
from ..configs.cifar_bank import CifarScaling
from ..configs.images import DIGITS
from ..stats import LARGEST, NETWORKS, Rows, values_of, where
from ..style import AGENTS, add_legend
from ._images import (
    COSTS,
    METRICS,
    SCALED,
    TRAINED,
    banked,
    image_artifact,
    label_cifar_sizes,
    of,
    scaling_claims,
    scaling_figure,
)
from ._replication import RECIPES

_PLACE = "Appendix G.3, Figure 10"

_TUNED: dict[str, Any] = {"tuned": True}
_TRAIN: dict[str, Any] = {"fitted": "train"}
_ENSEMBLE = of("ensemble", size=LARGEST, **_TUNED)


def _epinet(recipe: str, **wanted: Any) -> Difference:
    """Return the joint loss of an epinet on the smallest networks, minus that of the largest ensemble."""
    own = {**_TUNED, **_TRAIN, **wanted}
    ensemble = of("ensemble", size=LARGEST, tuned=own["tuned"])
    return Difference("joint", of("epinet", recipe=recipe, **own), ensemble, NETWORKS)


ARTIFACT = banked(
    image_artifact(
        title="Base networks, ensembles and epinets on CIFAR-10",
        label="fig:cifar10_scaling",
        protocol=DIGITS,
        dataset="cifar10",
        parts=TRAINED,
        minutes={"smoke": 0.5, "laptop": 3, "paper": 5},
        data="digits instead of CIFAR-10, MLPs instead of ResNets",
        caption="As Figure 2.",
        place=_PLACE,
        claims=scaling_claims("fig10"),
        draw=partial(scaling_figure, agents=SCALED, cost="parameters"),
    ),
    config=CifarScaling(),
    minutes=2,
    seed=14,
    records="cifar10_bank",
    run="cifar_bank:run",
    groups="groups",
    data="10,000 test images of CIFAR-10, 37 trained ResNets, epinets on eight of them",
    tolerances={
        "error": Tolerance(absolute=0.005),
        "marginal": Tolerance(absolute=0.03),
        # Where a chosen temperature is the next one of the grid, the loss is another.
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "temperature": Tolerance(absolute=0.3),
    },
    caption=(
        "Real CIFAR-10: stored outputs of trained ResNets on all test images, in folds; temperatures are chosen on "
        "other folds than those judged. Ensembles are of the smallest ResNet. Epinets, at the prior scales of the "
        "paper's text and of the released checkpoint and without a conv prior, are on a few networks of each depth "
        "and are trained on their outputs on a part of the training images. The Pitman-Yor head is exact, at an "
        "aleatoric share of $alpha = 0.1$. Bars: standard errors over blocks of images and over networks."
    ),
    claims=(
        *scaling_claims(
            "fig10",
            over=NETWORKS,
            alike=NETWORKS,
            runs="network",
            epinet={"recipe": "released", **_TRAIN},
            **_TUNED,
        ),
        Claim(
            "fig10-untuned",
            "The released epinet on the smallest network predicts jointly better than the largest ensemble, untuned.",
            "joint log-loss, epinet - largest ensemble, at temperature 1",
            _epinet("released", tuned=False),
            at_most(0),
        ),
        Claim(
            "fig10-paper",
            "So does the epinet at the prior scale of the paper's text, without the conv prior.",
            "joint log-loss, epinet - largest ensemble",
            _epinet("paper"),
            at_most(0),
            location="set here: without the conv prior",
        ),
        Claim(
            "fig10-folds",
            "The released epinet does better if it is fitted on images that its base has not been trained on.",
            "joint log-loss, fitted on held-out images - on training images",
            Difference(
                "joint",
                of("epinet", recipe="released", fitted="folds", **_TUNED),
                of("epinet", recipe="released", **_TUNED, **_TRAIN),
                NETWORKS,
            ),
            at_most(0),
            location="ours",
        ),
        Claim(
            "fig10-head",
            "The exact Pitman-Yor head on the smallest network predicts jointly better than the largest ensemble.",
            "joint log-loss, head - largest ensemble",
            Difference("joint", of("pitman-yor", **_TUNED), _ENSEMBLE, NETWORKS),
            at_most(0),
            location="ours, Theorem 5",
        ),
    ),
)


def _panel(ax: Axes, rows: Rows, metric: str) -> None:
    """Draw one loss over the parameters; temperatures are the chosen ones."""
    series = [(where(rows, agent=agent), AGENTS[agent].line()) for agent in ("resnet", "ensemble", "pitman-yor")]
    for recipe in values_of(rows, "recipe"):
        if recipe:
            own = where(rows, agent="epinet", recipe=recipe, **_TRAIN)
            series.append((own, {**RECIPES[recipe], "label": f"epinet, {recipe}"}))
    for own, look in series:
        points = []
        for size in sorted(values_of(own, "size")):
            sized = where(own, size=size)
            points.append((sized[0]["parameters"], *NETWORKS.mean(sized, metric)))
        xs, means, bars = zip(*points, strict=True)
        ax.errorbar(xs, means, yerr=bars, capsize=2, **{"markersize": 4, **look})
    label_cifar_sizes(ax)


def draw(rows: Rows) -> Figure:
    """Draw error, marginal and joint loss over parameters."""
    figure = Figure(figsize=(6.75, 2.8))
    axes = figure.subplots(1, 3)
    for ax, (metric, words) in zip(axes, METRICS.items(), strict=True):
        _panel(ax, where(rows, **_TUNED), metric)
        ax.set_xlabel(COSTS["parameters"])
        ax.set_ylabel(words)
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[2], columns=5)
    return figure
