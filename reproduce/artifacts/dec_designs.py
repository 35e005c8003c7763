"""Beyond the paper: how near Thompson sampling gets to the maximum of a function, with few evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from ..artifact import Artifact, Tolerance
from ..claims import Choice, Claim, Difference, Measure, at_most
from ..configs import unit_of
from ..configs.testbed import Variant, variant_of
from ..stats import LARGEST, SEEDS, Measurement, Paired, Rows, mean_over, values_of, where
from ..style import AGENTS, INK, MUTED, Look

DESIGN_AGENTS = ("epinet", "ensemble+", "gp", "apart", "chance")
"""Who searches: "apart" is the epinet with an index of its own for each candidate, "gp" an exact Gaussian process."""


@dataclass(frozen=True, kw_only=True)
class DesignsOf:
    """One agent that searches the largest value of one function; see `Designs`."""

    surface: str
    agent: str
    num_particles: int
    num_runs: int
    num_evaluations: int
    num_candidates: int
    num_updates: int
    num_points: int

    @property
    def variant(self) -> Variant:
        """The agent of the testbed that it is made of; meaningless for the others."""
        if self.agent == "ensemble+":
            return variant_of("ensemble+", num_particles=self.num_particles)
        return variant_of("epinet")


@dataclass(frozen=True, kw_only=True)
class Designs:
    """How near to the maximum of a function Thompson sampling gets with few evaluations.

    Attributes:
        surfaces: the functions, "branin" and "hartmann".
        agents: some of `DESIGN_AGENTS`.
        num_particles: size of the ensemble with priors.
        num_runs: number of runs.
        num_evaluations: evaluations of a run.
        num_candidates: random designs that each evaluation is chosen from.
        num_updates: steps of training after each evaluation.
        num_points: number of points of a curve.
    """

    surfaces: tuple[str, ...] = ("branin", "hartmann")
    agents: tuple[str, ...] = DESIGN_AGENTS
    num_particles: int = 10
    num_runs: int = 100
    num_evaluations: int = 100
    num_candidates: int = 1000
    num_updates: int = 100
    num_points: int = 20

    def units(self) -> Mapping[str, DesignsOf]:
        """Return one run per function and agent."""
        return {
            f"{surface}-{agent}": unit_of(DesignsOf, self, surface=surface, agent=agent)
            for surface in self.surfaces
            for agent in self.agents
        }


_BOTH = Paired(strata=("surface",))


def found(agent: str, surface: str = "") -> Choice:
    """Return how far the best designs of an agent are below the maximum at the end, in one function or in all."""
    return lambda rows: where(
        rows, agent=agent, evaluations=LARGEST, surface=lambda name: not surface or name == surface
    )


def beside(agent: str, other: str, surface: str = "") -> Measure:
    """Return by how much an agent ends farther from the maximum than another one, in shares of the distance of chance.

    Functions weigh alike, whatever their scales and however easy they are.
    """

    def measure(rows: Rows) -> Measurement:
        names = values_of(rows, "surface")
        chance = {name: mean_over([row["gap"] for row in found("chance", name)(rows)]).value for name in names}
        return Difference(
            lambda row: row["gap"] / chance[row["surface"]], found(agent, surface), found(other, surface), _BOTH
        )(rows)

    return measure


# A tenth of what chance leaves.
_MARGIN = 0.1

ARTIFACT = Artifact(
    title="Designs that epinets, ensembles and an exact Gaussian process find",
    session="decisions",
    order=6,
    tiers={
        "smoke": Designs(
            surfaces=("branin",),
            agents=("epinet", "gp", "chance"),
            num_runs=2,
            num_evaluations=4,
            num_candidates=8,
            num_updates=2,
            num_points=3,
        ),
        "laptop": Designs(num_runs=20, num_evaluations=50, num_candidates=300),
        # More runs of the same sizes.
        "paper": Designs(num_runs=120, num_evaluations=50, num_candidates=300),
    },
    seed=206,
    run="designs:run",
    groups="groups",
    tolerances={"gap": Tolerance(absolute=0.3, relative=0.3)},
    minutes={"smoke": 1, "laptop": 1, "paper": 6},
    data="Branin's and Hartmann's functions",
    exact=True,
    caption=(
        "Distance of the best design so far from the maximum, in standard deviations of the function over its box; "
        "means over runs, with standard errors."
    ),
    claims=(
        Claim(
            "dec_designs-branin-chance",
            "In two dimensions, Thompson sampling by an epinet finds better designs than chance.",
            "distance to the maximum of Branin's function, epinet minus chance",
            Difference("gap", found("epinet", "branin"), found("chance", "branin"), SEEDS),
            at_most(0),
        ),
        Claim(
            "dec_designs-hartmann-chance",
            "In six dimensions, Thompson sampling by an epinet finds better designs than chance.",
            "distance to the maximum of Hartmann's function, epinet minus chance",
            Difference("gap", found("epinet", "hartmann"), found("chance", "hartmann"), SEEDS),
            at_most(0),
        ),
        Claim(
            "dec_designs-branin-gp",
            "In two dimensions, an epinet finds designs at least as good as those of an exact Gaussian process.",
            "distance to the maximum of Branin's function, epinet minus Gaussian process, over that of chance",
            beside("epinet", "gp", "branin"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_designs-hartmann-gp",
            "In six dimensions, an epinet finds designs at least as good as those of an exact Gaussian process.",
            "distance to the maximum of Hartmann's function, epinet minus Gaussian process, over that of chance",
            beside("epinet", "gp", "hartmann"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_designs-apart",
            "One index for all candidates finds better designs than an index for each of them.",
            "distance to the maximum by an epinet, one index minus many, over that of chance, mean of both functions",
            beside("epinet", "apart"),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_designs-ensemble-plus",
            "An epinet finds designs at least as good as those of an ensemble with prior functions.",
            "distance to the maximum, epinet minus ensemble+, over that of chance, mean of both functions",
            beside("epinet", "ensemble+"),
            at_most(0, margin=_MARGIN),
        ),
    ),
)


_LOOKS = {
    "epinet": AGENTS["epinet"],
    "apart": Look(color=AGENTS["epinet"].color, marker="x", linestyle=":", label="epinet, many indices at once"),
    "ensemble+": AGENTS["ensemble+"],
    "gp": Look(color=INK, marker="s", linestyle="-.", label="exact Gaussian process"),
    "chance": Look(color=MUTED, marker="D", linestyle="--", label="chance"),
}
_TITLES = {"branin": "Branin, 2 dimensions", "hartmann": "Hartmann, 6 dimensions"}


def _draw_curve(ax: Axes, rows: Rows, look: Look, shift: int) -> None:
    """Draw the mean over runs of one agent, with error bars at some points."""
    steps = sorted({row["evaluations"] for row in rows})
    points = [mean_over([row["gap"] for row in rows if row["evaluations"] == step]) for step in steps]
    every = max(1, len(steps) // 4)
    ax.errorbar(
        steps,
        [mean for mean, _ in points],
        yerr=[error for _, error in points],
        errorevery=(shift % every, every),
        markevery=(shift % every, every),
        capsize=2,
        **look.line(markersize=4, linewidth=1.2),
    )


def draw(rows: Rows) -> Figure:
    """Draw one panel per function."""
    names = [name for name in _TITLES if any(row["surface"] == name for row in rows)]
    figure = Figure(figsize=(6.75, 3.0))
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for ax, name in zip(axes, names, strict=True):
        for shift, (agent, look) in enumerate(_LOOKS.items()):
            own = [row for row in rows if row["surface"] == name and row["agent"] == agent]
            if own:
                _draw_curve(ax, own, look, shift)
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_title(_TITLES[name], fontsize=8)
        ax.set_xlabel("evaluations")
    axes[0].set_ylabel("below the maximum")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=7)
    return figure
