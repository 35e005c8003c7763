"""What the figures of the replication share: the study, the looks of epinets by recipe, and points with errors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from ..artifact import Artifact, Tolerance
from ..claims import Select, select
from ..configs.replication import Replication, Study
from ..stats import BASES, SMALLEST, Rows, values_of, where
from ..style import AGENTS

TAU = 10
NUM_SAMPLES = 1000

LOSSES: Mapping[str, Tolerance] = {
    "joint": Tolerance(absolute=0.05, relative=0.05),
    "joint_error": Tolerance(absolute=0.02),
    "temperature": Tolerance(absolute=0.3),
    "error": Tolerance(absolute=0.005),
    "marginal": Tolerance(absolute=0.02),
    "marginal_error": Tolerance(absolute=0.01),
    "difference": Tolerance(absolute=0.05, relative=0.05),
    "difference_error": Tolerance(absolute=0.02),
    "excess": Tolerance(absolute=0.02),
    "excess_error": Tolerance(absolute=0.01),
    "tuning_marginal": Tolerance(absolute=0.02),
    "tuning_joint": Tolerance(absolute=0.05),
    "tuning_limit": Tolerance(absolute=0.005),
}

_SPREADS = ("temperature", "error", "marginal", "joint", "difference", "tuning_marginal", "tuning_joint")

WITH_SPREADS: Mapping[str, Tolerance] = {**LOSSES, **{f"{name}_spread": Tolerance(absolute=0.05) for name in _SPREADS}}
"""The same, where an ensemble is a mean over random subsets."""


def study_figure(*, parts: tuple[str, ...], minutes: float, **fields: Any) -> Artifact:
    """Return a figure of the replication that shows these parts of the study."""
    shared: dict[str, Any] = {
        "session": "cifar",
        "seed": 21,
        "tiers": {"replication": Replication(study=Study(), parts=parts)},
        "run": "replication:run",
        "groups": "groups",
        "records": "replication",
        "reads_inputs": True,
        "minutes": {"replication": minutes},
        "data": "CIFAR-10, trained ResNets",
        "exact": True,
        "tolerances": WITH_SPREADS,
    }
    return Artifact(**{**shared, **fields})


RECIPES = {
    "released": {"color": "#9dbdf0", "marker": "v", "linestyle": ":"},
    "paper": {"color": "#5f93e0", "marker": "^", "linestyle": "-."},
    "strict": {"color": "#0a1c40", "marker": "s", "linestyle": "--"},
    "cold": {"color": AGENTS["epinet"].color, "marker": "o", "linestyle": "-"},
}
"""Shades around the epinet's blue."""


def shown(rows: Rows, **wanted: Any) -> Rows:
    """Return the rows at the figures' tau and M, or exact, at the chosen temperature unless told otherwise."""
    return where(rows, **{"kind": "tuned", "tau": TAU, "indices": NUM_SAMPLES, **wanted})


def epinets(recipe: str, *, kind: str = "tuned", depth: Any = SMALLEST) -> Select:
    """Return the epinets of a recipe on bases of the particles' depth, or on all."""
    wanted = {} if depth is None else {"depth": depth}
    return select(part="epinets", recipe=recipe, kind=kind, tau=TAU, indices=NUM_SAMPLES, **wanted)


def look_of(agent: str) -> dict[str, Any]:
    """Return how an agent of the replication is drawn; "epinet released" is the epinet of that recipe."""
    name, _, recipe = agent.partition(" ")
    if name == "epinet" and recipe in RECIPES:
        return {**RECIPES[recipe], "label": f"epinet, {recipe}"}
    look = AGENTS.get({"network": "resnet"}.get(agent, agent), AGENTS["mlp"])
    return look.line(label={"network": "single network", "ensemble": "ensemble of ResNet-20"}.get(agent, agent))


def points(groups: Sequence[Rows], metric: str) -> tuple[list[float], list[float]]:
    """Return the mean and the error of a metric for each group of rows."""
    found = [BASES.mean(rows, metric) for rows in groups]
    return [mean for mean, _ in found], [0.0 if math.isnan(error) else error for _, error in found]


def errorbar(ax: Axes, xs: Sequence[float], groups: Sequence[Rows], metric: str, **look: Any) -> None:
    """Draw the means of groups of rows over a cost, with their errors."""
    means, errors = points(groups, metric)
    ax.errorbar(xs, means, yerr=errors, capsize=2, **{"markersize": 4, **look})


def draw_dots(ax: Axes, settings: Mapping[str, Rows], metric: str) -> None:
    """Draw the mean over bases of a metric for each agent in each setting."""
    agents = list(dict.fromkeys(agent for rows in settings.values() for agent in values_of(rows, "agent")))
    width = 0.8 / max(1, len(agents))
    for number, agent in enumerate(agents):
        groups = [[row for row in rows if row["agent"] == agent] for rows in settings.values()]
        places = [place + width * (number - (len(agents) - 1) / 2) for place in range(len(settings))]
        errorbar(ax, places, groups, metric, **{**look_of(agent), "linestyle": "none"})
    ax.set_xticks(range(len(settings)), list(settings), fontsize=7)
    ax.set_xlim(-0.5, len(settings) - 0.5)
    ax.grid(visible=False, axis="x")
