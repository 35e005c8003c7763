"""Figure 6: as Figure 2, with the uncertainty baselines; at the paper's numbers of indices, and at equal ones."""

from matplotlib.figure import Figure

from ..claims import Claim, Difference, Select, at_most, select
from ..configs.imagenet import BankStudy
from ..configs.images import PAIRS
from ..stats import SEEDS
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
    draw=_draw_from_scratch,
)

_EQUAL = 100
_HEADS = ("dropout", "sngp", "het", "laplace", "heads")


def _less(name: str, statement: str, quantity: str, first: Select, second: Select, location: str = "") -> Claim:
    """Return the claim that joint predictions are better than others."""
    difference = Difference("joint", first, second, _imagenet.PER_BLOCK)
    return Claim(f"fig06-{name}", statement, quantity, difference, at_most(0), location)


_OURS = "beyond the paper"
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
    claims=(
        _less(
            "dropout",
            "The epinet predicts jointly better than dropout.",
            "joint log-loss, epinet - dropout on the features of ResNet-50 (M = 10)",
            _EPINET,
            _imagenet.of("dropout", indices=10),
        ),
        _less(
            "mimo",
            "The epinet predicts jointly better than mimo.",
            "joint log-loss, epinet - mimo, for which there is no public network",
            _EPINET,
            _imagenet.NOT_AT_HAND,
        ),
        _less(
            "sngp",
            "The epinet predicts jointly better than sngp.",
            "joint log-loss, epinet - sngp's random features on ResNet-50 (M = 10)",
            _EPINET,
            _imagenet.of("sngp", indices=10),
        ),
        _less(
            "het",
            "The epinet predicts jointly better than het.",
            f"joint log-loss, epinet - het on the features of ResNet-50, M = {_EQUAL} for both",
            _EPINET_EQUAL,
            _imagenet.of("het", indices=_EQUAL),
        ),
        _less(
            "dropout-equal",
            "The epinet predicts jointly better than dropout also with as many indices.",
            f"joint log-loss, epinet - dropout on the features of ResNet-50, M = {_EQUAL} for both",
            _EPINET_EQUAL,
            _imagenet.of("dropout", indices=_EQUAL),
            _OURS,
        ),
        _less(
            "sngp-equal",
            "The epinet predicts jointly better than sngp also with as many indices.",
            f"joint log-loss, epinet - sngp's random features on ResNet-50, M = {_EQUAL} for both",
            _EPINET_EQUAL,
            _imagenet.of("sngp", indices=_EQUAL),
            _OURS,
        ),
        _less(
            "laplace",
            "The epinet predicts jointly better than a Laplace approximation of the last layer.",
            f"joint log-loss, epinet - last-layer Laplace on ResNet-50, M = {_EQUAL} for both",
            _EPINET_EQUAL,
            _imagenet.of("laplace", indices=_EQUAL),
            _OURS,
        ),
        _less(
            "no-prior",
            "With its prior the epinet predicts jointly better than without.",
            "joint log-loss, epinet - the same without prior, temperature 1, M = 300",
            select(row="default"),
            select(row="matched prior scale", value=0),
            _OURS,
        ),
        _less(
            "head",
            "The epinet predicts jointly better than a head of its capacity without an index.",
            "joint log-loss, epinet - deterministic head, ResNet-50",
            _EPINET,
            _imagenet.of("deterministic"),
            _OURS,
        ),
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
