"""Beyond the paper: what a set earns that was chosen by joint predictions, by marginals, exactly, or by chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Exact, at_least, equals, select
from ..configs import unit_of
from ..configs.testbed import FEW, Variant, variant_of
from ..stats import LARGEST, Paired, Rows, mean_over
from ..style import AGENTS, INK, MUTED


@dataclass(frozen=True, kw_only=True)
class SetsOf:
    """One agent that chooses sets on problems of one temperature; see `Sets`."""

    variant: Variant
    temperature: float
    input_dim: int
    data_ratio: int
    num_problems: int
    num_pools: int
    num_candidates: int
    copies: tuple[int, ...]
    spread: float
    set_size: int
    num_samples: int


@dataclass(frozen=True, kw_only=True)
class Sets:
    """Choosing a few of many candidates, of which one that succeeds is enough.

    Attributes:
        variants: the agents.
        temperatures: temperatures of the testbed's problems.
        input_dim: their input dimension.
        data_ratio: their number of training examples over the dimension.
        num_problems: number of problems.
        num_pools: pools of candidates per problem.
        num_candidates: candidates of a pool.
        copies: how many candidates are close to one another: 1 for none, otherwise groups of so many.
        spread: standard deviation of a candidate around the center of its group.
        set_size: how many to choose.
        num_samples: number of joint samples.
    """

    variants: tuple[Variant, ...] = (
        variant_of("epinet"),
        variant_of("ensemble", num_particles=10),
        variant_of("ensemble+", num_particles=10),
        variant_of("dropout"),
        variant_of("mlp"),
    )
    temperatures: tuple[float, ...] = (0.01, 0.1)
    input_dim: int = 10
    data_ratio: int = 1
    num_problems: int = 200
    num_pools: int = 10
    num_candidates: int = 12
    copies: tuple[int, ...] = (1, 2, 4)
    spread: float = 0.1
    set_size: int = 3
    num_samples: int = 1000

    def units(self) -> Mapping[str, SetsOf]:
        """Return one run per agent and temperature."""
        return {
            f"{variant.label}-rho{temperature:g}": unit_of(SetsOf, self, variant=variant, temperature=temperature)
            for variant in self.variants
            for temperature in self.temperatures
        }


SETS = Paired(by=("temperature", "seed"))
_MOST = select(agent="epinet", copies=LARGEST)


def _gain(row: Mapping[str, Any]) -> float:
    """Return what the joint prediction earns beyond marginals."""
    return row["joint"] - row["marginal"]


ARTIFACT = Artifact(
    title="What sets earn that are chosen by joint predictions and by marginals",
    session="decisions",
    order=3,
    tiers={
        "smoke": Sets(
            variants=FEW[:2],
            temperatures=(0.1,),
            num_problems=2,
            num_pools=2,
            num_candidates=4,
            copies=(1, 2),
            set_size=2,
            num_samples=50,
        ),
        "laptop": Sets(
            variants=(variant_of("epinet"), variant_of("ensemble", num_particles=10), variant_of("mlp")),
            num_problems=16,
            num_pools=4,
        ),
        "paper": Sets(
            variants=(variant_of("epinet"), variant_of("ensemble", num_particles=10), variant_of("mlp")),
            num_problems=100,
        ),
    },
    seed=204,
    run="sets:run",
    groups="groups",
    tolerances={
        "joint": Tolerance(absolute=0.05),
        "marginal": Tolerance(absolute=0.05),
        "exact": Tolerance(absolute=0.05),
        "random": Tolerance(absolute=0.01),
        "truth": Tolerance(absolute=0.01),
        "ratio": Tolerance(absolute=0.02),
    },
    minutes={"smoke": 1, "laptop": 1, "paper": 10},
    data="problems of the Neural Testbed",
    exact=True,
    caption="The gain of a chosen set over a random one, at two temperatures of the labels.",
    claims=(
        Claim(
            "dec_sets-joint",
            "A set that an epinet chooses by its joint prediction earns more than one chosen by its marginals.",
            "true reward, joint minus marginal, most candidates alike",
            Difference(_gain, _MOST, None, SETS),
            at_least(0),
            location="Appendix B",
        ),
        Claim(
            "dec_sets-copies",
            "The gain of joint prediction is larger where candidates are alike.",
            "gain with copies minus gain without",
            Difference(_gain, _MOST, select(agent="epinet", copies=1), SETS),
            at_least(0),
        ),
        Claim(
            "dec_sets-mlp",
            "For a conventional network joint predictions are no better than marginals.",
            "true reward of mlp, joint minus marginal",
            Difference(_gain, select(agent="mlp", copies=LARGEST), None, SETS),
            equals(0, tolerance=0.02),
            location="Section 2",
        ),
        Claim(
            "dec_sets-greedy",
            "The greedy set earns as much as the best of all sets under the joint prediction.",
            "true reward of epinet, greedy minus exact",
            Difference(lambda row: row["joint"] - row["exact"], _MOST, None, SETS),
            equals(0, tolerance=0.01),
        ),
        Claim(
            "dec_sets-bound",
            "The greedy set never has less than 63 percent of the best predicted reward.",
            "smallest ratio of predicted rewards, greedy over exact",
            Exact("ratio", which="smallest"),
            at_least(1 - math.exp(-1)),
        ),
        Claim(
            "dec_sets-ensemble",
            "Sets that an epinet chooses earn more than those of an ensemble of ten.",
            "true reward by joint prediction, epinet minus ensemble",
            Difference("joint", _MOST, select(agent="ensemble", copies=LARGEST), SETS),
            at_least(0),
            location="Section 2",
        ),
    ),
)


_ORDER = ("mlp", "dropout", "ensemble", "ensemble+", "epinet")
# Color, marker, filling and words of each way of choosing.
_WAYS: dict[str, dict[str, Any]] = {
    "marginal": {"color": AGENTS["marginal"].color, "marker": "s", "label": "greedy by marginals"},
    "joint": {"color": AGENTS["joint"].color, "marker": "o", "label": "greedy by joint prediction"},
    "exact": {"color": INK, "marker": "+", "label": "best set under joint prediction"},
}


def _draw_panel(ax: Axes, rows: Rows, agents: Sequence[str]) -> None:
    """Draw what the sets of each agent earn beyond a random one, in each problem; a line marks the truth."""
    for shift, (way, look) in enumerate(_WAYS.items()):
        points = [mean_over([row[way] - row["random"] for row in rows if row["agent"] == agent]) for agent in agents]
        bars = [0.0 if math.isnan(error) else error for _, error in points]
        places = [place + 0.22 * (shift - 1) for place in range(len(agents))]
        ax.errorbar(places, [mean for mean, _ in points], yerr=bars, linestyle="", markersize=5, capsize=2, **look)
    truth, _ = mean_over([row["truth"] - row["random"] for row in rows])
    ax.axhline(truth, color=MUTED, linestyle="--", linewidth=1.0, label="best set under the truth")
    ax.axhline(0.0, color=INK, linestyle=":", linewidth=0.8)
    ax.set_xticks(range(len(agents)), agents, rotation=35, ha="right", fontsize=7)
    ax.grid(axis="x", visible=False)


def draw(rows: Rows) -> Figure:
    """Draw a row of panels per temperature, one for each number of candidates that are alike."""
    agents = [agent for agent in _ORDER if any(row["agent"] == agent for row in rows)]
    temperatures = sorted({row["temperature"] for row in rows})
    copies = sorted({row["copies"] for row in rows})
    figure = Figure(figsize=(6.75, 0.6 + 2.2 * len(temperatures)))
    axes = figure.subplots(len(temperatures), len(copies), squeeze=False, sharex=True, sharey="row")
    for line, temperature in zip(axes, temperatures, strict=True):
        for ax, number in zip(line, copies, strict=True):
            own = [row for row in rows if (row["temperature"], row["copies"]) == (temperature, number)]
            _draw_panel(ax, own, agents)
            words = "all different" if number == 1 else f"groups of {number} alike"
            ax.set_title(f"$\\rho$ = {temperature:g}, {words}", fontsize=8)
        line[0].set_ylabel("success beyond chance")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, fontsize=7)
    return figure
