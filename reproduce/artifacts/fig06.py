"""Figure 6: as Figure 2, with the uncertainty baselines; at the paper's numbers of indices, and at equal ones."""

from matplotlib.figure import Figure

from ..claims import Claim, Difference, at_most
from ..configs.images import PAIRS
from ..stats import SEEDS
from ..style import add_legend
from ._images import EPINET, NUM_SAMPLES, PAPER_COUNTS, TRAINED, Rows, draw_row, image_artifact, of, shown_at

ARTIFACT = image_artifact(
    title="The same with the uncertainty baselines",
    label="fig:imagenet_overall_all",
    protocol=PAIRS,
    dataset="imagenet",
    parts=(*TRAINED, "baselines", "controls"),
    minutes={"smoke": 0.5, "laptop": 2, "paper": 300},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption=(
        "As Figure 2, with baselines on the smallest base network: above with the paper's numbers of index "
        "samples, below with one number for all."
    ),
    place="Section 6, Figure 6",
    claims=(
        Claim(
            "fig06-dropout",
            "The epinet predicts jointly better than dropout.",
            "joint log-loss, epinet - dropout (M = 10 for dropout)",
            Difference("joint", EPINET, of("dropout", indices=10), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig06-mimo",
            "The epinet predicts jointly better than mimo.",
            "joint log-loss, epinet - mimo",
            Difference("joint", EPINET, of("mimo"), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig06-sngp",
            "The epinet predicts jointly better than sngp.",
            "joint log-loss, epinet - sngp (M = 10 for sngp)",
            Difference("joint", EPINET, of("sngp", indices=10), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig06-het",
            "The epinet predicts jointly better than het.",
            "joint log-loss, epinet - het",
            Difference("joint", EPINET, of("het"), SEEDS),
            at_most(0),
        ),
        Claim(
            "fig06-dropout-equal",
            "The epinet predicts jointly better than dropout also with as many indices.",
            "joint log-loss, epinet - dropout, M = 1000 for both",
            Difference("joint", EPINET, of("dropout"), SEEDS),
            at_most(0),
            location="beyond the paper",
        ),
        Claim(
            "fig06-sngp-equal",
            "The epinet predicts jointly better than sngp also with as many indices.",
            "joint log-loss, epinet - sngp, M = 1000 for both",
            Difference("joint", EPINET, of("sngp"), SEEDS),
            at_most(0),
            location="beyond the paper",
        ),
        Claim(
            "fig06-no-prior",
            "With its prior the epinet predicts jointly better than without.",
            "joint log-loss, epinet - the same without prior",
            Difference("joint", EPINET, of("epinet without prior"), SEEDS),
            at_most(0),
            location="beyond the paper",
        ),
        Claim(
            "fig06-head",
            "The epinet predicts jointly better than a head of its capacity without an index.",
            "joint log-loss, epinet - deterministic head",
            Difference("joint", EPINET, of("deterministic head"), SEEDS),
            at_most(0),
            location="beyond the paper",
        ),
    ),
)

_AGENTS = ("resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het")


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 4.9))
    axes = figure.subplots(2, 3)
    for line, counts, words in (
        (axes[0], PAPER_COUNTS, "dropout and sngp with $M = 10$"),
        (axes[1], {}, f"all with $M = {NUM_SAMPLES}$"),
    ):
        draw_row(line, shown_at(rows, counts), _AGENTS, "parameters")
        line[1].set_title(words)
    add_legend(figure, axes[0][2])
    return figure
