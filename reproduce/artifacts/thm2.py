"""Theorem 2: shortfalls of many decision problems, and the bound."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, at_least, at_most, select
from ..closed_forms import least_kl
from ..configs import unit_of
from ..stats import Rows
from ..style import AGENTS, INK, MUTED


@dataclass(frozen=True, kw_only=True)
class ShortfallProblems:
    """Theorem 2: random problems of one size.

    Attributes:
        tau: number of labels.
        num_classes: values of each label.
        num_actions: number of actions.
        num_problems: how many problems are drawn.
        num_points: how many of those with a shortfall are kept one by one, for the figure.
    """

    tau: int
    num_classes: int
    num_actions: int
    num_problems: int
    num_points: int


@dataclass(frozen=True, kw_only=True)
class ShortfallSearch:
    """Theorem 2: a search for problems that come close to the bound.

    Attributes:
        num_outcomes: number of label combinations.
        num_starts: how many searches, each for another shortfall.
        num_steps: steps of gradient descent.
    """

    num_outcomes: int
    num_starts: int
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class ShortfallBound:
    """Theorem 2: the shortfall of many decision problems against the bound."""

    taus: tuple[int, ...] = (1, 2, 4)
    num_classes: int = 3
    num_actions: tuple[int, ...] = (2, 8, 64)
    num_problems: int = 1_000_000
    num_points: int = 100
    num_outcomes: int = 16
    num_starts: int = 200
    num_steps: int = 1000

    def units(self) -> Mapping[str, ShortfallProblems | ShortfallSearch]:
        """Return one run per size of problem, and the search."""
        problems = {
            f"tau{tau}_actions{actions:02d}": unit_of(ShortfallProblems, self, tau=tau, num_actions=actions)
            for tau in self.taus
            for actions in self.num_actions
        }
        search = unit_of(ShortfallSearch, self)
        return {**problems, "search": search}


ARTIFACT = Artifact(
    title="Shortfall of many decision problems against its bound",
    label="thm:universality",
    session="theory",
    tiers={
        "smoke": ShortfallBound(taus=(2,), num_actions=(8,), num_problems=500, num_starts=8, num_steps=60),
        "laptop": ShortfallBound(num_problems=10_000, num_points=40, num_starts=40, num_steps=400),
        "paper": ShortfallBound(),
    },
    seed=102,
    run="thm2:run",
    tolerances={
        "num_above_bound": Tolerance(absolute=0),
        "largest_excess": Tolerance(absolute=0.0001),
        "largest_fraction": Tolerance(absolute=0.001),
        "mean_fraction": Tolerance(absolute=0.001),
        "share_without_loss": Tolerance(absolute=0.001),
        "kl": Tolerance(absolute=1e-05, relative=0.01),
        "shortfall": Tolerance(absolute=0.0001, relative=0.01),
    },
    minutes={"smoke": 0.2, "laptop": 1, "paper": 2.5},
    data="simulated decision problems",
    exact=True,
    caption=(
        "Each mark is a decision problem: random, adversarial, or found by a search. The dashed line is the "
        "smallest divergence that permits a shortfall."
    ),
    place="Appendix B, Theorem 2",
    claims=(
        Claim(
            "thm2-bound",
            "The shortfall of every random decision problem is at most the square root of twice the divergence.",
            "largest shortfall minus bound",
            Exact("largest_excess", select(kind="summary")),
            at_most(0, tolerance=1e-06),
        ),
        Claim(
            "thm2-search",
            "Problems whose divergence a search made as small as it could stay within the bound.",
            "largest shortfall minus bound",
            Exact(
                lambda row: row["shortfall"] - math.sqrt(2 * row["kl"]),
                select(kind=lambda kind: kind not in ("summary", "problem")),
            ),
            at_most(0, tolerance=1e-06),
        ),
        Claim(
            "thm2-sharp",
            "A shortfall s needs a divergence of ((1 + s) ln(1 + s) + (1 - s) ln(1 - s)) / 2 or more.",
            "smallest divergence beyond that",
            Exact(
                lambda row: row["kl"] - least_kl(row["shortfall"]),
                select(kind=lambda kind: kind != "summary"),
                "smallest",
            ),
            at_least(0, tolerance=1e-06),
            location="Ours, sharpens Theorem 2",
        ),
        Claim(
            "thm2-tight",
            "The bound is tight: no smaller constant would do.",
            "largest share of the bound that a search attained",
            Exact(lambda row: row["shortfall"] / math.sqrt(2 * row["kl"]), select(kind="end of search")),
            at_least(0.99),
            location="Ours, on Theorem 2",
        ),
    ),
)

_RANDOM = {"s": 14, "color": MUTED, "linewidths": 0.8}
_LOOKS = {
    "perturbed": {**_RANDOM, "marker": "x", "label": "random: perturbed"},
    "independent": {**_RANDOM, "marker": "+", "label": "random: independent"},
    "product of marginals": {**_RANDOM, "marker": "1", "s": 22, "label": "random: product of marginals"},
    "start of search": {
        "marker": "s",
        "s": 12,
        "facecolors": "none",
        "edgecolors": AGENTS["ensemble"].color,
        "linewidths": 0.9,
        "label": "nearest misleading one",
    },
    "end of search": {
        "marker": "^",
        "s": 18,
        "color": AGENTS["epinet"].color,
        "linewidths": 0,
        "label": "after search",
    },
}


def _draw_points(ax: Axes, rows: Rows, height: Callable[[Mapping[str, Any]], float]) -> None:
    """Draw each problem that has a shortfall."""
    for kind, look in _LOOKS.items():
        mine = [row for row in rows if kind in (row["kind"], row.get("prediction")) and row["shortfall"] > 0]
        ax.scatter([row["kl"] for row in mine], [height(row) for row in mine], zorder=3, **look)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 3.3))
    left, right = figure.subplots(1, 2)
    shortfalls = [10 ** (-4 + 4 * i / 400) for i in range(401)]
    least = [least_kl(s) for s in shortfalls]
    divergences = [s**2 / 2 for s in (*shortfalls, 10.0)]
    left.plot(divergences, [math.sqrt(2 * kl) for kl in divergences], color=INK, label="bound $\\sqrt{2\\,KL}$")
    left.plot(least, shortfalls, color=INK, linestyle="--", linewidth=1.2, label="sharpest possible")
    _draw_points(left, rows, lambda row: row["shortfall"])
    left.set(xscale="log", yscale="log", xlim=(1e-6, 30), ylim=(1e-4, 4))
    left.set_xlabel("divergence $KL(P \\,\\|\\, \\hat{P})$ in nats")
    left.set_ylabel("shortfall of the reward")
    right.axhline(1.0, color=INK)
    right.plot(
        least, [s / math.sqrt(2 * kl) for s, kl in zip(shortfalls, least, strict=True)], color=INK, ls="--", lw=1.2
    )
    _draw_points(right, rows, lambda row: row["shortfall"] / math.sqrt(2 * row["kl"]))
    right.set(xscale="log", xlim=(1e-6, 30), ylim=(0, 1.08))
    right.set_xlabel("divergence $KL(P \\,\\|\\, \\hat{P})$ in nats")
    right.set_ylabel("share of the bound")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, columnspacing=1.4, handletextpad=0.4)
    return figure
