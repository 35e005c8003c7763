"""The Pitman-Yor head on shifted and on augmented images of CIFAR-10, on one network and on an ensemble's mean."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Select, at_least, at_most, select
from ..configs.cifar_head import ShiftedHead
from ..stats import NETWORKS, Rows, values_of, where
from ..style import AGENTS, INK, add_legend, set_log_scale

_LOCATION = "ours, Theorem 5"
_CLOSE = 0.3


def _shifted(agent: str) -> Select:
    """Return an agent's mean over all shifts."""
    return select(part="shifted", shift="mean", agent=agent)


def _augmented(agent: str) -> Select:
    """Return an agent under augmented draws; fields at the library's default length scale."""
    own = {"length_scale": _CLOSE} if "field" in agent else {}
    return select(part="augmented", agent=agent, **own)


ARTIFACT = Artifact(
    title="One number on shifted and augmented images: the Pitman-Yor head on CIFAR-10",
    session="cifar",
    order=9,
    seed=27,
    tiers={"replication": ShiftedHead()},
    run="cifar_shift:run",
    reads_inputs=True,
    minutes={"replication": 8},
    data="CIFAR-10, 20 trained ResNets",
    exact=True,
    tolerances={
        "error": Tolerance(absolute=0.01),
        "marginal": Tolerance(absolute=0.05, relative=0.05),
        "joint": Tolerance(absolute=0.1, relative=0.05),
    },
    caption=(
        "Left, joint log-loss of pairs of rotated and corrupted images, each repeated unchanged. Right, joint "
        "log-loss of independently augmented draws from a pair, so that no draw repeats an image; fields of "
        "several length scales. Temperatures are chosen on other, unchanged images. In outline: the mean "
        "prediction of the ensemble through the head. Bars: standard errors over blocks of pairs and over "
        "networks."
    ),
    place=_LOCATION,
    claims=(
        Claim(
            "rep_shift-head",
            "On rotated and corrupted images, too, the exact head on one network is below the ensemble of 20.",
            "joint loss minus the ensemble's, alpha = 0.05, tau = 10, mean over all shifts",
            Difference("joint", _shifted("exact head"), _shifted("ensemble"), NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_shift-marginal",
            "The ensemble has the lower marginal loss there.",
            "marginal loss of the network minus the ensemble's, mean over all shifts",
            Difference("marginal", _shifted("network"), _shifted("ensemble"), NETWORKS),
            at_least(0),
        ),
        Claim(
            "rep_shift-combined",
            "The ensemble's mean prediction through the exact head is below the ensemble's own joint prediction.",
            "joint loss minus the ensemble's, alpha = 0.05, tau = 10, mean over all shifts",
            Difference("joint", _shifted("ensemble + head"), _shifted("ensemble"), NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_shift-augmented-network",
            "Under augmented draws, a field over the features lowers the joint loss of the network that it is put on.",
            "joint loss minus the network's, alpha = 0.2, length scale 0.3, tau = 10, M = 1000",
            Difference("joint", _augmented("field"), _augmented("network"), NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_shift-augmented",
            "Under augmented draws, the field on one network is below the ensemble of 20.",
            "joint loss minus the ensemble's, alpha = 0.2, length scale 0.3, tau = 10, M = 1000",
            Difference("joint", _augmented("field"), _augmented("ensemble"), NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_shift-augmented-combined",
            "Under augmented draws, the ensemble's mean prediction through a field is below the ensemble's own.",
            "joint loss minus the ensemble's, alpha = 0.2, length scale 0.3, tau = 10, M = 1000",
            Difference("joint", _augmented("ensemble + field"), _augmented("ensemble"), NETWORKS),
            at_most(0),
        ),
    ),
)

_LOOKS = {
    "network": ("resnet", False, "ResNet-20"),
    "exact head": ("pitman-yor", False, "head on a ResNet-20"),
    "field": ("pitman-yor", False, "field on a ResNet-20"),
    "ensemble": ("ensemble", False, "ensemble of 20"),
    "ensemble + head": ("ensemble", True, "its mean through the head"),
    "ensemble + field": ("ensemble", True, "its mean through a field"),
}


def _point(ax: Axes, place: float, rows: Rows, agent: str, label: bool) -> None:
    """Draw the joint loss of an agent."""
    name, hollow, words = _LOOKS[agent]
    look = {**AGENTS[name].line(linestyle="", markersize=4.5), "label": words if label else None}
    face = {"markerfacecolor": "white"} if hollow else {}
    mean, error = NETWORKS.mean(rows, "joint")
    ax.errorbar([place], [mean], yerr=[error], capsize=2, **{**look, **face})


def draw(rows: Rows) -> Figure:
    """Draw joint losses under each shift, and under augmented draws."""
    figure = Figure(figsize=(6.75, 3.2))
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    shifted, augmented = where(rows, part="shifted"), where(rows, part="augmented")
    kinds = [
        (kind, strength)
        for kind in values_of(shifted, "shift")
        if kind != "mean"
        for strength in sorted(values_of(where(shifted, shift=kind), "strength"))
    ]
    for number, agent in enumerate(values_of(shifted, "agent")):
        for place, (kind, strength) in enumerate(kinds):
            own = where(shifted, agent=agent, shift=kind, strength=strength)
            _point(left, place + 0.12 * number - 0.18, own, agent, place == 0)
    set_log_scale(left)
    left.set_xticks(
        range(len(kinds)), [kind if strength in (0, 1) else f"{strength}" for kind, strength in kinds], rotation=90
    )
    left.set_ylabel("joint log-loss, $\\tau = 10$")
    cases: list[tuple[str, str, Rows]] = []
    for agent in values_of(augmented, "agent"):
        own = where(augmented, agent=agent)
        scales = sorted(values_of(own, "length_scale"))
        cases += [(agent, f", {scale:g}", where(own, length_scale=scale)) for scale in scales] or [(agent, "", own)]
    for place, (agent, _, own) in enumerate(cases):
        _point(right, place, own, agent, False)
    set_log_scale(right)
    names = [f"{agent}{words}".replace(" + ", "\n+ ") for agent, words, _ in cases]
    right.set_xticks(range(len(cases)), names, rotation=90, fontsize="x-small")
    right.tick_params(axis="x", colors=INK)
    add_legend(figure, left, columns=4)
    return figure
