"""The exact head when people give the labels: its share is then something that can be fitted."""

from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Select, at_least, at_most, select
from ..configs.cifar_head import PeopleLabels
from ..stats import NETWORKS, SMALLEST, Rows, values_of, where
from ..style import AGENTS, add_legend

_LOCATION = "ours, Theorem 5"


def _of(agent: str, **wanted: bool) -> Select:
    """Return an agent on the smallest networks, at what was fitted."""
    return select(**{"agent": agent, "size": SMALLEST, "fitted": True, **wanted})


ARTIFACT = Artifact(
    title="One number and labels of people: the exact head on CIFAR-10H",
    session="cifar",
    order=9,
    seed=25,
    tiers={"replication": PeopleLabels()},
    run="cifar_people:run",
    reads_inputs=True,
    minutes={"replication": 2},
    data="CIFAR-10H, trained ResNets",
    exact=True,
    tolerances={
        "marginal": Tolerance(absolute=0.02),
        "joint": Tolerance(absolute=0.05, relative=0.05),
        "alpha": Tolerance(absolute=0.05),
        "alpha_error": Tolerance(absolute=0.02),
        "temperature": Tolerance(absolute=0.2),
    },
    caption=(
        "Each label of a pair of images is from a different annotator. Temperature and share of the head are "
        "fitted to labels of a fifth of the images by one call, the temperature of the ensemble is chosen on them, "
        "and all are judged on the others. White: shares that were not fitted. Bars: standard errors over blocks "
        "and networks."
    ),
    place=_LOCATION,
    claims=(
        Claim(
            "rep_people-network",
            "Where people label anew, the exact head has a lower joint loss than the network that it is put on.",
            "joint loss minus the network's at its best temperature, ResNet-20, tau = 10",
            Difference("joint", _of("exact head"), _of("network"), NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_people-ensemble",
            "It has a lower joint loss than the ensemble of 20, too.",
            "joint loss minus the ensemble's, ResNet-20, tau = 10",
            Difference("joint", _of("exact head"), _of("ensemble"), NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_people-share",
            "Labels of people have a share far from the limit of labels that never change.",
            "the fitted share, mean over ResNet-20",
            Difference("alpha", _of("exact head"), None, NETWORKS),
            at_least(0.2),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the joint loss over the share, for each depth, with the ensemble beside it."""
    figure = Figure(figsize=(4.6, 2.8))
    ax = figure.subplots()
    heads = where(rows, agent="exact head")
    look = AGENTS["pitman-yor"].line(linestyle="", markersize=4.5)
    depths = sorted(values_of(heads, "size"))
    for rank, depth in enumerate(depths):
        own = where(heads, size=depth)
        shade = {**look, "alpha": 0.4 + 0.6 * (rank + 1) / len(depths)}
        for fitted in (True, False):
            for alpha in [None] if fitted else sorted(values_of(where(own, fitted=False), "alpha")):
                chosen = where(own, fitted=True) if alpha is None else where(own, fitted=False, alpha=alpha)
                place, _ = NETWORKS.mean(chosen, "alpha")
                mean, error = NETWORKS.mean(chosen, "joint")
                face = (
                    {"label": f"exact head, ResNet-{depth}"} if fitted else {"markerfacecolor": "white", "label": None}
                )
                ax.errorbar([place], [mean], yerr=[error], capsize=2, **{**shade, **face})
    for agent, name in (("network", "resnet"), ("ensemble", "ensemble")):
        line = AGENTS[name].line(marker="")
        mean, _ = NETWORKS.mean(where(rows, agent=agent, size=20), "joint")
        line["label"] = "ResNet-20" if agent == "network" else "ensemble of 20"
        ax.axhline(mean, color=line["color"], linestyle=line["linestyle"], linewidth=1, label=line["label"])
    ax.set_xlabel("aleatoric share $\\alpha$")
    ax.set_ylabel("joint log-loss, labels of people")
    ax.set_ylim(bottom=0)
    add_legend(figure, ax, columns=3)
    return figure
