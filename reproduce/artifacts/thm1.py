"""Theorem 1: what three agents earn, against the number of labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..configs import MarginalsInsufficient
from ..style import AGENTS

ARTIFACT = Artifact(
    title="A decision problem in which marginals do not help",
    label="thm:marginals-insufficient",
    session="theory",
    tiers={
        "smoke": MarginalsInsufficient(taus=(2, 3), num_replicas=200, num_samples=8),
        "laptop": MarginalsInsufficient(num_replicas=10_000),
        "paper": MarginalsInsufficient(),
    },
    seed=101,
    run="thm1:decide",
    tolerances={
        "exact": Tolerance(absolute=1e-05),
        "monte_carlo": Tolerance(absolute=0.02),
        "standard_error": Tolerance(absolute=0.001, relative=0.1),
    },
    minutes={"smoke": 0.2, "laptop": 1, "paper": 2},
    data="exact enumeration, and simulated labels",
    exact=True,
    caption=("Left, the reward of the paper's proof; right, the same over its largest value (@departures)."),
)

_PANELS = {"paper": "reward $1 - (s/\\tau)^2$ of the proof", "scaled": "the same over its largest value"}
_SHIFT = {"joint": 0.0, "marginal": -0.13, "random": 0.13}


def _draw_reward(ax: Axes, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the exact values as lines, and the Monte Carlo means with two standard errors as markers."""
    for agent, shift in _SHIFT.items():
        look = AGENTS[agent]
        mine = sorted((row for row in rows if row["agent"] == agent), key=lambda row: row["tau"])
        taus = [row["tau"] for row in mine]
        if agent != "random":  # Equal to the marginal agent's: one line for both.
            ax.plot(taus, [row["exact"] for row in mine], **look.line(marker="", label=None, linewidth=1.2))
        ax.errorbar(
            [tau + shift for tau in taus],
            [row["monte_carlo"] for row in mine],
            yerr=[2 * row["standard_error"] for row in mine],
            **look.line(linestyle="", markersize=4),
        )
    ax.set_title(title)
    ax.set_xlabel("number of labels $\\tau$")
    ax.set_xticks(sorted({row["tau"] for row in rows}))


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (reward, title) in zip(axes, _PANELS.items(), strict=True):
        _draw_reward(ax, [row for row in rows if row["reward"] == reward], title)
    axes[0].set_ylabel("expected reward")
    axes[1].legend(loc="lower right", title="lines exact, markers Monte Carlo ± 2 s.e.", title_fontsize=7.5)
    return figure
