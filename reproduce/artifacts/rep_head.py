"""The Pitman-Yor head on real CIFAR-10: joint loss at exactly the base's marginal loss."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Exact, Ratio, Select, at_least, at_most, equals, select
from ..configs.cifar_bank import StoredNetworks
from ..configs.cifar_head import CifarHead, Halves
from ..stats import LARGEST, NETWORKS, SMALLEST, Rows, values_of, where
from ..style import AGENTS, add_legend, set_log_scale
from ._images import NUM_SAMPLES

_LOCATION = "ours, Theorem 5"
_TAU = 10
_ENSEMBLE = select(agent="ensemble", size=20, tuned=True, tau=_TAU)
_SAMPLED = select(agent="sampled head", tuned=True, num_samples=NUM_SAMPLES)


def _exact(alpha: float, **wanted: Any) -> Select:
    """Return the exact head on the networks of the particles' depth."""
    return select(**{"agent": "exact head", "size": SMALLEST, "alpha": alpha, "tau": _TAU, **wanted})


def _excess(row: Mapping[str, Any]) -> float:
    """Return what the marginal loss exceeds that of the tempered network by, as a share."""
    return row["marginal"] / row["base_marginal"] - 1


def _at_exact_temperature(count: int) -> Select:
    """Return the sampled head where its marginal loss exceeds the network's by nothing but noise."""
    return select(agent="sampled head", tuned=False, num_samples=count)


_SMOKE = CifarHead(
    networks=StoredNetworks(sizes=((20, 20), (56, 1)), num_bases=1),
    halves=Halves(num_tuning=200, blocks=2, limit=600),
    alphas=(0.1, 1.0),
    taus=(1, _TAU),
    sampled_alphas=(0.2,),
    stretches=(1.0,),
    num_sets=1,
    ensemble_sizes=(20,),
    sample_counts=(100, NUM_SAMPLES),
)

ARTIFACT = Artifact(
    title="One number on a trained ResNet: the Pitman-Yor head on real CIFAR-10",
    session="cifar",
    order=1,
    seed=23,
    tiers={"smoke": _SMOKE, "laptop": CifarHead()},
    run="cifar_head:run",
    groups="groups",
    minutes={"smoke": 0.3, "laptop": 2},
    data="8,000 test images of CIFAR-10, 37 trained ResNets",
    exact=True,
    tolerances={
        "error": Tolerance(absolute=0.005),
        "marginal": Tolerance(absolute=0.02),
        "base_marginal": Tolerance(absolute=1e-5),
        "joint": Tolerance(absolute=0.05, relative=0.1),
        "alpha": Tolerance(absolute=0.1),
        "temperature": Tolerance(absolute=0.3),
    },
    caption=(
        "Temperatures, and the share of the sampled head, are chosen on a fifth of the test images; all are judged "
        "on the others. Left, exact heads on ResNets over the aleatoric share: their marginal loss is that of the "
        "tempered network at every share, and their joint loss tends to the sum of the marginal losses of both "
        "images. Middle, over the number of labels, with ensembles of the sizes beside the lines. Right, over the "
        "number of indices, the excess of the sampled head's marginal loss over the network's: at the network's "
        "own temperature, and at the one with the lowest joint loss."
    ),
    place=_LOCATION,
    claims=(
        Claim(
            "rep_head-ensemble",
            "The exact head on one ResNet-20 is at least 0.15 nats below an ensemble of 20 in joint loss.",
            "joint loss minus the ensemble's, alpha = 0.05, tau = 10, mean over ResNet-20",
            Difference("joint", _exact(0.05), _ENSEMBLE, NETWORKS),
            at_most(-0.15),
        ),
        Claim(
            "rep_head-limit",
            "In the limit of a small share its joint loss is the sum of the marginal losses of both images.",
            "joint loss over twice the marginal loss, alpha = 0.001, mean over ResNet-20",
            Difference(lambda row: row["joint"] / (2 * row["marginal"]), _exact(0.001), None, NETWORKS),
            equals(1, tolerance=0.01),
        ),
        Claim(
            "rep_head-marginal",
            "At every share its marginal loss is that of the tempered network.",
            "largest difference of the joint loss of one label and the network's marginal loss, all networks",
            Exact(
                lambda row: row["joint"] - row["base_marginal"],
                select(agent="exact head", tau=1),
                which="farthest",
            ),
            equals(0, tolerance=1e-6),
        ),
        Claim(
            "rep_head-sampled",
            "With 1000 indices, the head that is coherent over images is below the ensemble of 20 in joint loss.",
            "joint loss minus the ensemble's, sampled head on all bases, tau = 10, M = 1000",
            Difference("joint", _SAMPLED, _ENSEMBLE, NETWORKS),
            at_most(0),
        ),
        Claim(
            "rep_head-sampled-marginal",
            "Finitely many indices cost it at most 3 % of the tempered network's marginal loss.",
            "marginal loss over the tempered network's, M = 1000",
            Difference(lambda row: row["marginal"] / row["base_marginal"], _SAMPLED, None, NETWORKS),
            at_most(1.03),
        ),
        Claim(
            "rep_head-noise",
            "That excess is the noise of finitely many indices: it falls as they become more.",
            "excess at the exact head's temperature at M = 100, over that at M = 1000",
            Ratio(_excess, _at_exact_temperature(100), _at_exact_temperature(NUM_SAMPLES), NETWORKS),
            at_least(3),
        ),
    ),
)


def _curve(ax: Axes, rows: Rows, column: str, metric: Any, values: Sequence[Any], **look: Any) -> None:
    """Draw the mean of a metric over a column."""
    found = [NETWORKS.mean(where(rows, **{column: value}), metric) for value in values]
    means, errors = ([one[place] for one in found] for place in (0, 1))
    ax.errorbar(values, means, yerr=errors, capsize=2, **{"markersize": 3.5, **look})


def draw(rows: Rows) -> Figure:
    """Draw the exact head over its share and over the number of labels, and the sampled head over M."""
    figure = Figure(figsize=(6.75, 3.0))
    left, middle, right = figure.subplots(1, 3)
    look, ensemble = AGENTS["pitman-yor"].line(linestyle="-"), AGENTS["ensemble"].line()
    exact = where(rows, agent="exact head")
    for rank, depth in enumerate(sorted(values_of(exact, "size"))):
        own = where(exact, size=depth, tau=_TAU)
        shade = {**look, "alpha": 0.4 + 0.6 * rank / 3, "label": f"exact head, ResNet-{depth}"}
        _curve(left, own, "alpha", "joint", [alpha for alpha in sorted(values_of(own, "alpha")) if alpha < 1], **shade)
    best = where(rows, agent="ensemble", tuned=True)
    mean, _ = NETWORKS.mean(where(best, size=LARGEST, tau=_TAU), "joint")
    left.axhline(mean, color=ensemble["color"], linestyle="--", linewidth=1, label="ensemble of 20 ResNet-20")
    left.set_xlabel("aleatoric share $\\alpha$")
    left.set_ylabel("joint log-loss, $\\tau = 10$")
    left.set_ylim(bottom=0)
    taus = sorted(values_of(exact, "tau"))
    curve = where(exact, size=SMALLEST, alpha=CifarHead().curve_alpha)
    shared = {row["network"] for row in curve if row["tau"] not in (1, _TAU)} or {row["network"] for row in curve}
    _curve(middle, where(curve, network=lambda name: name in shared), "tau", "joint", taus, **look)
    sizes = sorted(values_of(best, "size"))
    for rank, size in enumerate(sizes):
        shade = {**ensemble, "alpha": 0.3 + 0.7 * (rank + 1) / len(sizes)}
        _curve(middle, where(best, size=size), "tau", "joint", taus, **shade)
        height, _ = NETWORKS.mean(where(best, size=size, tau=taus[-1]), "joint")
        middle.annotate(f"{size}", (taus[-1], height), xytext=(4, -3), textcoords="offset points", fontsize=7)
    middle.set_xscale("log")
    set_log_scale(middle)
    middle.set_xlabel("labels $\\tau$")
    sampled = where(rows, agent="sampled head")
    for tuned, style in ((False, {"linestyle": ":", "markerfacecolor": "white"}), (True, {"linestyle": "-"})):
        label = "$T$ of the choice" if tuned else "$T$ of the network"
        counts = sorted(values_of(sampled, "num_samples"))
        percent = lambda row: 100 * _excess(row)  # noqa: E731
        _curve(right, where(sampled, tuned=tuned), "num_samples", percent, counts, **{**look, **style, "label": label})
    right.set_xscale("log")
    right.set_ylim(bottom=0)
    right.set_xlabel("indices $M$")
    right.set_ylabel("marginal loss, excess (%)")
    right.legend()
    add_legend(figure, left, columns=3)
    return figure
