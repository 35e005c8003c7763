"""Figure 8: joint loss under plain and under augmented dyadic sampling."""

from matplotlib.figure import Figure

from ..artifact import Tolerance
from ..claims import Claim, Difference, at_most
from ..configs.images import PAIRS
from ..stats import LARGEST, SEEDS
from ..style import add_legend
from ._images import EPINET, LOSSES, Rows, draw_agents, image_artifact, of

ARTIFACT = image_artifact(
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
    claims=(
        Claim(
            "fig08-ensemble",
            "Under augmented dyadic sampling, too, the epinet is better than the largest ensemble.",
            "augmented joint log-loss, epinet - largest ensemble",
            Difference("augmented", EPINET, of("ensemble", size=LARGEST), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig08-resnet",
            "Under augmented dyadic sampling, too, the epinet is better than resnet.",
            "augmented joint log-loss, epinet - resnet",
            Difference("augmented", EPINET, of("resnet"), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig08-dropout",
            "Under augmented dyadic sampling, too, the epinet is better than dropout.",
            "augmented joint log-loss, epinet - dropout",
            Difference("augmented", EPINET, of("dropout"), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig08-mimo",
            "Under augmented dyadic sampling, too, the epinet is better than mimo.",
            "augmented joint log-loss, epinet - mimo",
            Difference("augmented", EPINET, of("mimo"), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig08-sngp",
            "Under augmented dyadic sampling, too, the epinet is better than sngp.",
            "augmented joint log-loss, epinet - sngp",
            Difference("augmented", EPINET, of("sngp"), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig08-het",
            "Under augmented dyadic sampling, too, the epinet is better than het.",
            "augmented joint log-loss, epinet - het",
            Difference("augmented", EPINET, of("het"), SEEDS),
            at_most(0),
        ),
    ),
)

_AGENTS = ("resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het")


def draw(rows: Rows) -> Figure:
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
