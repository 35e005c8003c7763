"""Figure 6: as Figure 2, with the uncertainty baselines; at the paper's numbers of indices, and at equal ones."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from ..claims import Claim, Difference, Select, at_most, select
from ..configs.imagenet import BankStudy
from ..configs.images import PAIRS
from ..stats import SEEDS, Design
from ..style import AGENTS, add_legend
from . import _imagenet
from ._images import EPINET, METRICS, NUM_SAMPLES, PAPER_COUNTS, TRAINED, Rows, draw_row, image_artifact, of, shown_at

_AGENTS = ("resnet", "ensemble", "epinet", "dropout", "mimo", "sngp", "het")


def _draw_from_scratch(rows: Rows) -> Figure:
    """Draw what was trained here."""
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


_BETTER = {
    "dropout": "than dropout.",
    "mimo": "than mimo.",
    "sngp": "than sngp.",
    "het": "than het.",
    "dropout-equal": "than dropout also with as many indices.",
    "sngp-equal": "than sngp also with as many indices.",
    "laplace": "than a Laplace approximation of the last layer.",
    "head": "than a head of its capacity without an index.",
}
"""What the epinet predicts jointly better than, by the name of a claim."""
_IN_PAPER = ("dropout", "mimo", "sngp", "het")


def _claims(over: Design, compared: Mapping[str, tuple[str, Select, Select]]) -> tuple[Claim, ...]:
    """Return the claims that joint predictions of the epinet are better than others.

    Args:
        over: what means are over.
        compared: for each claim what the epinet is compared with, in words, its rows and those of the others.
    """
    found = []
    for name, (words, own, others) in compared.items():
        statement = f"The epinet predicts jointly better {_BETTER.get(name)}"
        if name == "no-prior":
            statement = "With its prior the epinet predicts jointly better than without."
        difference = Difference("joint", own, others, over)
        location = "" if name in _IN_PAPER else "beyond the paper"
        found.append(
            Claim(f"fig06-{name}", statement, f"joint log-loss, epinet - {words}", difference, at_most(0), location)
        )
    return tuple(found)


_FROM_SCRATCH = image_artifact(
    title="The same with the uncertainty baselines",
    label="fig:imagenet_overall_all",
    protocol=PAIRS,
    dataset="imagenet",
    parts=(*TRAINED, "baselines", "controls"),
    minutes={"smoke": 0.5, "laptop": 2, "paper": 300},
    data="digit pairs instead of ImageNet, MLPs instead of ResNets",
    caption=(
        "As Figure 2, with baselines on the smallest base network: above with the paper's numbers of index samples,"
        " below with one number for all."
    ),
    place="Section 6, Figure 6",
    claims=_claims(
        SEEDS,
        {
            "dropout": ("dropout (M = 10 for dropout)", EPINET, of("dropout", indices=10)),
            "mimo": ("mimo", EPINET, of("mimo")),
            "sngp": ("sngp (M = 10 for sngp)", EPINET, of("sngp", indices=10)),
            "het": ("het", EPINET, of("het")),
            "dropout-equal": ("dropout, M = 1000 for both", EPINET, of("dropout")),
            "sngp-equal": ("sngp, M = 1000 for both", EPINET, of("sngp")),
            "no-prior": ("the same without prior", EPINET, of("epinet without prior")),
            "head": ("deterministic head", EPINET, of("deterministic head")),
        },
    ),
    draw=_draw_from_scratch,
)

_EQUAL = 100
_HEADS = ("dropout", "sngp", "het", "laplace", "heads")
_EPINET, _EPINET_EQUAL = _imagenet.EPINET, _imagenet.of("epinet", indices=_EQUAL)

ARTIFACT = _imagenet.bank_artifact(
    _FROM_SCRATCH,
    config=BankStudy(
        parts=("base", "ensemble", "epinet"),
        first_parts=(
            *(f"head-{name}" for name in (*_HEADS, "deterministic")),
            "ablation-default",
            "ablation-matched_prior_scale",
        ),
    ),
    minutes=1.4,
    caption=(
        "The largest network of the bank, the paper's smallest, with uncertainty baselines that need no training of"
        " the network: dropout on its features, random features (sngp), heteroscedastic logits (het), a Laplace "
        "approximation of the last layer, last layers with random priors. Above, dropout and sngp have few index "
        "samples, as in the paper; below, all have as many. The baseline mimo needs a network of its own and is "
        "left out."
    ),
    claims=_claims(
        _imagenet.PER_BLOCK,
        {
            "dropout": (
                "dropout on the features of ResNet-50 (M = 10)",
                _EPINET,
                _imagenet.of("dropout", indices=10),
            ),
            "mimo": ("mimo, for which there is no public network", _EPINET, _imagenet.NOT_AT_HAND),
            "sngp": (
                "sngp's random features on ResNet-50 (M = 10)",
                _EPINET,
                _imagenet.of("sngp", indices=10),
            ),
            "het": (
                f"het on the features of ResNet-50, M = {_EQUAL} for both",
                _EPINET_EQUAL,
                _imagenet.of("het", indices=_EQUAL),
            ),
            "dropout-equal": (
                f"dropout on the features of ResNet-50, M = {_EQUAL} for both",
                _EPINET_EQUAL,
                _imagenet.of("dropout", indices=_EQUAL),
            ),
            "sngp-equal": (
                f"sngp's random features on ResNet-50, M = {_EQUAL} for both",
                _EPINET_EQUAL,
                _imagenet.of("sngp", indices=_EQUAL),
            ),
            "laplace": (
                f"last-layer Laplace on ResNet-50, M = {_EQUAL} for both",
                _EPINET_EQUAL,
                _imagenet.of("laplace", indices=_EQUAL),
            ),
            "no-prior": (
                "the same without prior, temperature 1, M = 300",
                select(row="default"),
                select(row="matched prior scale", value=0),
            ),
            "head": ("deterministic head, ResNet-50", _EPINET, _imagenet.of("deterministic")),
        },
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw ResNet-50 with all its heads, at the paper's numbers of indices and at equal ones."""
    figure = Figure(figsize=(6.75, 5.2))
    axes = figure.subplots(2, 3)
    for line, counts, words in (
        (axes[0], {"epinet": NUM_SAMPLES, **PAPER_COUNTS}, "epinet with $M = 1000$, dropout and sngp with $M = 10$"),
        (axes[1], {}, f"all with $M = {_EQUAL}$"),
    ):
        for ax, metric in zip(line, METRICS, strict=True):
            for agent in ("resnet", "epinet", *_HEADS):
                own = _imagenet.of(agent, indices=counts.get(agent, _EQUAL))(rows)
                _imagenet.draw_points(ax, [own], "parameters", metric, **AGENTS[agent].line(linestyle=""))
            # Larger and behind: in the first two panels it is where its network is.
            look = AGENTS["pitman-yor"].line(linestyle="", markersize=7, zorder=1)
            _imagenet.draw_points(ax, [_imagenet.PITMAN_YOR(rows)], "parameters", metric, **look)
            ensembles = [
                _imagenet.BASE(rows),
                *_imagenet.by(rows, "members", _imagenet.of("ensemble", network=None)),
            ]
            look = AGENTS["ensemble"].line(label="ensemble, mixed", zorder=1)
            _imagenet.draw_points(ax, ensembles, "parameters", metric, **look)
        _imagenet.finish(line, "parameters")
        for ax in line:
            ax.set_xticks([25e6, 30e6, 40e6, 50e6])
        line[1].set_title(words)
    add_legend(figure, axes[0][2], columns=5)
    return figure
