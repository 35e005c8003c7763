"""Beyond the paper: what confident mistakes cost the testbed's agents, by predictions that are kept from certainty."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, at_least, at_most
from ..configs.testbed_bounded import Bounded
from ..limit import accepted_optima
from ..stats import PROBLEMS, UNKNOWN, Measurement, Rows, values_of, where
from ..style import AGENTS, INK


def chosen_bound(rows: Rows, agent: str) -> float:
    """Return the bound with the smallest mean joint divergence on the problems that are not judged."""
    own = where(rows, label=agent, is_judged=False)
    return min(values_of(own, "bound"), key=lambda bound: PROBLEMS.mean(where(own, bound=bound), "joint").value)


def _gain(rows: Rows, agent: str) -> Measurement:
    """Return the joint divergence at the chosen bound minus that without a bound, on the judged problems."""
    own = where(rows, label=agent, is_judged=True)
    if not own or not where(rows, label=agent, is_judged=False):
        return UNKNOWN
    bounded = where(own, bound=chosen_bound(rows, agent))
    return PROBLEMS.difference(bounded, where(own, bound=0.0), "joint", "joint")


def _worst(rows: Rows) -> Mapping[str, Any] | None:
    """Return the judged problem on which the epinet, as it is, has the largest joint divergence."""
    own = where(rows, label="epinet", is_judged=True, bound=0.0)
    return max(own, key=lambda row: float(row["joint"]), default=None)


def _left(rows: Rows) -> Measurement:
    """Return the share of the epinet's regret that the chosen bound leaves, on its worst problem."""
    worst = _worst(rows)
    optima = [] if worst is None else where(accepted_optima(), problem=worst["problem"])
    if worst is None or not optima:
        return UNKNOWN
    best = float(optima[0]["joint"])
    own = where(rows, label="epinet", is_judged=True, problem=worst["problem"])
    (bounded,) = where(own, bound=chosen_bound(rows, "epinet"))
    return Measurement((float(bounded["joint"]) - best) / (float(worst["joint"]) - best))


def _share_of_worst_inputs(rows: Rows) -> Measurement:
    """Return the share of the epinet's divergence that a tenth of the test inputs makes, on its worst problem."""
    worst = _worst(rows)
    return UNKNOWN if worst is None else Measurement(float(worst["share_of_worst"]))


ARTIFACT = Artifact(
    title="Confident mistakes: agents whose predictions are kept from certainty",
    session="testbed",
    order=4,
    seed=5,
    tiers={"paper": Bounded()},
    run="testbed_bounded:score",
    groups="groups",
    records="testbed",
    minutes={"paper": 1},
    data="Neural Testbed, two inputs and twenty examples",
    caption=(
        "Joint divergence over the least probability that any sample gives a class; a star marks the bound chosen on "
        "problems with other seeds. Left, means over problems. Right, the problem that is worst for the epinet; the "
        "dotted line is its Bayes optimum."
    ),
    tolerances={
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "share_of_worst": Tolerance(absolute=0.1),
        "seconds": Tolerance(absolute=math.inf),
    },
    claims=(
        *(
            Claim(
                f"testbed_bounded-{agent}",
                f"Kept from certainty by a bound chosen on other problems, {agent} predicts jointly better.",
                "joint divergence, bounded - as it is",
                lambda rows, agent=agent: _gain(rows, agent),
                at_most(0),
            )
            for agent in ("mlp", "epinet")
        ),
        Claim(
            "testbed_bounded-worst",
            "On the problem that is worst for the epinet, that bound takes half of its regret away.",
            "share of the epinet's regret to the optimum that is left",
            _left,
            at_most(0.5),
        ),
        Claim(
            "testbed_bounded-inputs",
            "There, a tenth of the test inputs makes most of the divergence.",
            "share of the joint divergence that comes from a tenth of the test inputs",
            _share_of_worst_inputs,
            at_least(0.5),
        ),
    ),
)


def _draw_panel(ax: Axes, rows: Rows, every: Rows) -> None:
    """Draw the joint divergence of each agent over the bound; zero stands at the left end."""
    bounds = sorted(values_of(rows, "bound"))
    for agent in values_of(rows, "label"):
        own = where(rows, label=agent)
        means = [PROBLEMS.mean(where(own, bound=bound), "joint") for bound in bounds]
        bars = [0.0 if math.isnan(error) else error for _, error in means]
        ax.errorbar(range(len(bounds)), [mean for mean, _ in means], yerr=bars, capsize=2, **AGENTS[agent].line())
        place = bounds.index(chosen_bound(every, agent))
        ax.plot([place], [means[place].value], "*", color=AGENTS[agent].color, markersize=11, zorder=4)
    ax.set_xticks(range(len(bounds)), [f"{bound:g}" for bound in bounds])
    ax.set_xlabel("least probability of a class")
    ax.set_ylim(bottom=0)


def draw(rows: Rows) -> Figure:
    """Draw means over all problems, and the epinet's worst problem."""
    figure = Figure(figsize=(6.75, 2.6))
    left, right = figure.subplots(1, 2)
    judged = where(rows, is_judged=True)
    _draw_panel(left, judged, rows)
    left.set_ylabel("joint KL ($\\tau = 10$)")
    left.legend()
    worst = _worst(rows)
    if worst is not None:
        _draw_panel(right, where(judged, problem=worst["problem"]), rows)
        right.set_title(f"problem {worst['problem']}", fontsize=8)
        for optimum in where(accepted_optima(), problem=worst["problem"]):
            right.axhline(float(optimum["joint"]), color=INK, linestyle=":", linewidth=1.0)
    return figure
