"""Different images of real CIFAR-10: who knows anything jointly about them?"""

from typing import Any

from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Select, at_least, at_most, select
from ..configs.banked import StoredEpinet
from ..configs.cifar_bank import StoredNetworks
from ..configs.cifar_head import Halves, NearImages
from ..stats import NETWORKS, Rows, values_of
from ..style import AGENTS, INK, add_legend
from ._replication import RECIPES

_LOCATION = "ours, beyond repeated inputs"


def _of(agent: str, pairs: str = "nearest") -> Select:
    """Return an agent on one kind of pair."""
    return select(agent=agent, pairs=pairs)


_SMOKE = NearImages(
    networks=StoredNetworks(sizes=((20, 20), (56, 1)), num_bases=1),
    halves=Halves(num_tuning=200, blocks=2, limit=1000),
    recipes=(("released", StoredEpinet(index_dim=5, prior_scale=4.0, num_steps=5)),),
    length_scales=(0.3,),
    num_samples=20,
)

ARTIFACT = Artifact(
    title="Joint predictions of different images of CIFAR-10",
    session="cifar",
    order=1,
    seed=24,
    tiers={"smoke": _SMOKE, "laptop": NearImages()},
    run="cifar_near:run",
    groups="groups",
    minutes={"smoke": 0.3, "laptop": 1},
    data="CIFAR-10, trained ResNets",
    exact=True,
    tolerances={"gain": Tolerance(absolute=0.01)},
    caption=(
        "Gain of the joint prediction of the true labels of two test images over the product of its marginals, in "
        "nats; zero for predictors that treat images as independent. Pairs are nearest neighbors in the features "
        "of a network that no agent uses; as a control, the same images in other pairs. Fields are Pitman-Yor "
        "heads of share $alpha = 0.2$ with the given length scale. Bars: two standard errors over blocks of pairs "
        "and over networks."
    ),
    place=_LOCATION,
    claims=(
        Claim(
            "rep_near-ensemble",
            "Twenty networks know something about how their errors on two near images go together.",
            "gain in log-probability on nearest neighbors, ensemble of 20",
            Difference("gain", _of("ensemble of 20"), None, NETWORKS),
            at_least(0),
        ),
        Claim(
            "rep_near-epinet",
            "So does the released epinet.",
            "gain in log-probability on nearest neighbors, mean over bases",
            Difference("gain", _of("epinet, released"), None, NETWORKS),
            at_least(0),
        ),
        Claim(
            "rep_near-field",
            "A field that reaches far claims a dependence that is not there: it loses.",
            "gain in log-probability on nearest neighbors, length scale 3, mean over bases",
            Difference("gain", _of("field, 3"), None, NETWORKS),
            at_most(0),
        ),
    ),
)


def _look(agent: str) -> tuple[str, str]:
    """Return color and marker of an agent."""
    kind, _, own = agent.partition(", ")
    if kind == "epinet":
        return RECIPES[own]["color"], RECIPES[own]["marker"]
    look = AGENTS["pitman-yor" if kind == "field" else "ensemble"]
    return look.color, look.marker


def draw(rows: Rows) -> Figure:
    """Draw the gain of each agent, on near pairs and on others."""
    figure = Figure(figsize=(5.0, 2.8))
    ax = figure.subplots()
    agents = values_of(rows, "agent")[::-1]
    for kind, shift, face in (("nearest", 0.12, None), ("other", -0.12, "white")):
        for place, agent in enumerate(agents):
            color, marker = _look(agent)
            mean, error = NETWORKS.mean(_of(agent, kind)(rows), "gain")
            fill: dict[str, Any] = {} if face is None else {"markerfacecolor": face}
            ax.errorbar(
                [mean],
                [place + shift],
                xerr=[2 * error],
                color=color,
                marker=marker,
                linestyle="",
                capsize=2,
                markersize=5,
                **fill,
            )
    ax.plot([], [], color=INK, marker="o", linestyle="", label="nearest neighbors")
    ax.plot(
        [], [], color=INK, marker="o", linestyle="", markerfacecolor="white", label="the same images, paired otherwise"
    )
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(range(len(agents)), agents)
    ax.set_xlabel("joint gain (nats per pair)")
    add_legend(figure, ax, columns=2)
    return figure
