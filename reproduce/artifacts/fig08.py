"""Figure 8: joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, Select, at_most, select
from ..configs.imagenet import BankStudy
from ..configs.images import PAIRS
from ..stats import LARGEST, SEEDS, Design
from ..style import AGENTS, add_legend
from . import _imagenet
from ._images import EPINET, LOSSES, Rows, draw_agents, image_artifact, of

_AGENTS = ("resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het")


def _draw_from_scratch(rows: Rows) -> Figure:
    """Draw both losses over parameters."""
    figure = Figure(figsize=(6.75, 3.0))
    axes = figure.subplots(1, 2)
    for ax, metric, words in zip(axes, ("joint", "augmented"), ("dyadic", "augmented dyadic"), strict=True):
        draw_agents(ax, rows, _AGENTS, metric, "parameters")
        ax.set_xlabel("parameters")
        ax.set_ylabel(f"joint log-loss, {words}")
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[0])
    return figure


def _less(name: str, others: str, words: str, first: Select, second: Select, over: Design, location: str = "") -> Claim:
    """Return the claim that the epinet is better than others."""
    return Claim(
        f"fig08-{name}",
        f"Under augmented dyadic sampling, too, the epinet is better than {others}.",
        f"augmented joint log-loss, {words}",
        Difference("augmented", first, second, over),
        at_most(0),
        location,
    )


_FROM_SCRATCH = image_artifact(
    title="Joint log-loss under augmented dyadic sampling",
    label="fig:augmented_dyadic",
    protocol=PAIRS,
    dataset="imagenet",
    parts=("augmented", "augmented-baselines"),
    minutes={"smoke": 0.5, "laptop": 1, "paper": 0},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    tolerances={**LOSSES, "augmented": Tolerance(absolute=2, relative=0.2), "augmented_error": Tolerance(absolute=1)},
    caption="Left, plain dyadic sampling; right, the augmented one.",
    place="Appendix E, Figure 8",
    claims=tuple(
        _less(name, others, f"epinet - {others.removeprefix('the ')}", EPINET, second, SEEDS)
        for name, (others, second) in {
            "ensemble": ("the largest ensemble", of("ensemble", size=LARGEST)),
            **{name: (name, of(name)) for name in ("resnet", "dropout", "mimo", "sngp", "het")},
        }.items()
    ),
    draw=_draw_from_scratch,
)

_OURS = "beyond the paper"


def _ours(name: str, others: str, words: str, second: Select, location: str = "") -> Claim:
    """Return the claim that the epinet on the network of the bank is better than others."""
    words = f"epinet on EfficientNet-Lite0 - {words}"
    return _less(name, others, words, select(agent="epinet"), second, _imagenet.PER_BLOCK, location)


ARTIFACT = _imagenet.bank_artifact(
    _FROM_SCRATCH,
    config=BankStudy(first_parts=("augmented",), networks=("efficientnet_lite0",)),
    run="imagenet_augmented:run",
    minutes=0.9,
    data="stored outputs of ten augmented draws from each of 140 pairs of validation images of ImageNet",
    tolerances={**LOSSES, "augmented": Tolerance(absolute=1, relative=0.3)},
    caption=(
        "One network with an epinet, a mean over seeds, and with a Pitman-Yor head whose noise is alike where "
        "features are; uncertainty baselines that need no training of the network; and the ensemble of all networks. "
        "Left, plain dyadic sampling of the same pairs; right, each draw is cropped and flipped anew."
    ),
    claims=(
        _ours("resnet", "resnet", "the network alone", select(agent="resnet")),
        *(
            _ours(name, others, f"{name}, which the bank does not have", _imagenet.NOT_AT_HAND)
            for name, others in (("ensemble", "the largest ensemble"), ("mimo", "mimo"))
        ),
        _ours("dropout", "dropout", "dropout on the features (M = 10)", select(agent="dropout")),
        _ours("sngp", "sngp", "sngp's random features (M = 10)", select(agent="sngp")),
        _ours("het", "het", "het on the features", select(agent="het")),
        _ours(
            "mixed",
            "an ensemble of seven architectures",
            "ensemble of all seven networks",
            select(agent="ensemble"),
            "beyond the paper: an ensemble of mixed architecture",
        ),
        _ours("pitman-yor", "a Pitman-Yor head", "Pitman-Yor head", select(agent="pitman-yor"), _OURS),
    ),
)


_LOOKS = {"ensemble": {"label": "ensemble, mixed"}, "pitman-yor": {"markersize": 7, "zorder": 1}}
"""What differs from the usual: the head is where its network and dropout are, so it is larger and behind them."""


def draw(rows: Rows) -> Figure:
    """Draw both losses over parameters, from the bank."""
    figure = Figure(figsize=(6.75, 3.0))
    axes = figure.subplots(1, 2)
    for ax, metric, words in zip(axes, ("joint", "augmented"), ("dyadic", "augmented dyadic"), strict=True):
        for agent in ("resnet", "ensemble", "epinet", "pitman-yor", "dropout", "sngp", "het"):
            own = select(agent=agent)(rows)
            look = AGENTS[agent].line(linestyle="", **_LOOKS.get(agent, {}))
            _imagenet.draw_points(ax, [own], "parameters", metric, **look)
        _imagenet.logarithmic(ax)
        ax.set_xlabel("parameters")
        ax.set_ylabel(f"joint log-loss, {words}")
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[0], columns=4)
    return figure
