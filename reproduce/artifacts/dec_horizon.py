"""Beyond the paper: when Thompson sampling loses less than the greedy rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..artifact import Artifact, Tolerance
from ..claims import Choice, Claim, Difference, Measure, Select, at_least, at_most, select
from ..configs import unit_of
from ..stats import LARGEST, SMALLEST, Measurement, Paired, Rows, mean_over, where
from ..style import AGENTS, INK, MUTED


@dataclass(frozen=True, kw_only=True)
class HorizonOf:
    """An epinet with one rule in the bandits of one number of actions and one temperature; see `Horizon`."""

    rule: str
    num_actions: int
    temperature: float
    input_dim: int
    horizons: tuple[int, ...]
    num_runs: int
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """When Thompson sampling loses less than the greedy rule.

    Attributes:
        rules: the rules, both of an epinet.
        actions: numbers of actions.
        temperatures: temperatures of the labels that are the rewards.
        input_dim: features of an action.
        horizons: numbers of steps; the largest is the length of a run.
        num_runs: number of runs.
        batch_size: number of observations of an update.
    """

    rules: tuple[str, ...] = ("thompson", "greedy")
    actions: tuple[int, ...] = (10, 50, 250)
    temperatures: tuple[float, ...] = (0.01, 0.1, 0.5)
    input_dim: int = 10
    horizons: tuple[int, ...] = (50, 100, 200, 500, 1000, 2000)
    num_runs: int = 24
    batch_size: int = 128

    def units(self) -> Mapping[str, HorizonOf]:
        """Return one run per rule, number of actions and temperature."""
        return {
            f"{rule}-{num_actions}-rho{temperature:g}": unit_of(
                HorizonOf, self, rule=rule, num_actions=num_actions, temperature=temperature
            )
            for num_actions in self.actions
            for rule in self.rules
            for temperature in self.temperatures
        }


_LONG, _SHORT = select(horizon=LARGEST), select(horizon=SMALLEST)
# Two successes in a hundred steps, as in the other bandits.
_MARGIN = 0.02


def _run(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells a run at one horizon from others of its rule."""
    return row["num_actions"], row["temperature"], row["seed"], row["horizon"]


def ahead(rows: Rows) -> list[dict[str, Any]]:
    """Return by how much each run of Thompson sampling has lost more than that of the greedy rule."""
    greedy = {_run(row): row["lost"] for row in where(rows, rule="greedy")}
    return [
        {**row, "more": row["lost"] - greedy[_run(row)]} for row in where(rows, rule="thompson") if _run(row) in greedy
    ]


def _thompson(first: Choice, second: Choice | None = None, *, strata: tuple[str, ...]) -> Measure:
    """Return how much more Thompson sampling loses in some runs, or how much that is beyond what it is in others."""

    def measure(rows: Rows) -> Measurement:
        return Difference("more", first, second, Paired(strata=strata))(ahead(rows))

    return measure


def _long(**wanted: Any) -> Select:
    """Return the rows at the longest horizon that have these values."""
    return select(horizon=LARGEST, **wanted)


ARTIFACT = Artifact(
    title="What Thompson sampling and the greedy rule lose, by horizon, actions and noise",
    session="decisions",
    order=7,
    tiers={
        "smoke": Horizon(actions=(3, 6), temperatures=(0.1,), input_dim=2, horizons=(5, 20), num_runs=2, batch_size=4),
        "laptop": Horizon(num_runs=8, horizons=(50, 100, 200, 500)),
        "paper": Horizon(),
    },
    seed=207,
    run="horizon:run",
    groups="groups",
    tolerances={"lost": Tolerance(absolute=0.05, relative=0.3)},
    minutes={"smoke": 1, "laptop": 1, "paper": 8},
    data="bandits with true models of the Neural Testbed",
    exact=True,
    caption=(
        "Expected successes lost per step so far, relative to always taking the best action; means over runs, with "
        "standard errors. Both rules act by the same kind of epinet."
    ),
    claims=(
        Claim(
            "dec_horizon-long",
            "Over the longest horizon, Thompson sampling loses less than the greedy rule.",
            "lost per step at the longest horizon, Thompson sampling minus greedy, mean over settings",
            _thompson(_LONG, strata=("num_actions", "temperature")),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_horizon-short",
            "Over the shortest horizon, the greedy rule loses less than Thompson sampling.",
            "lost per step at the shortest horizon, Thompson sampling minus greedy, mean over settings",
            _thompson(_SHORT, strata=("num_actions", "temperature")),
            at_least(0, margin=_MARGIN),
        ),
        Claim(
            "dec_horizon-horizon",
            "The longer the horizon, the better is Thompson sampling beside the greedy rule.",
            "Thompson sampling minus greedy, longest minus shortest horizon, mean over settings",
            _thompson(_LONG, _SHORT, strata=("num_actions", "temperature")),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_horizon-actions",
            "The more actions there are, the better is the greedy rule beside Thompson sampling.",
            "Thompson sampling minus greedy, most minus fewest actions, longest horizon, mean over temperatures",
            _thompson(_long(num_actions=LARGEST), _long(num_actions=SMALLEST), strata=("temperature",)),
            at_least(0, margin=_MARGIN),
        ),
        Claim(
            "dec_horizon-noise",
            "The noisier the rewards, the better is Thompson sampling beside the greedy rule.",
            "Thompson sampling minus greedy, most minus least noise, longest horizon, mean over numbers of actions",
            _thompson(_long(temperature=LARGEST), _long(temperature=SMALLEST), strata=("num_actions",)),
            at_most(0, margin=_MARGIN),
        ),
    ),
)


_STYLES: dict[str, dict[str, Any]] = {
    "thompson": {"linestyle": "-", "marker": "o", "markersize": 3.5, "label": "Thompson sampling"},
    "greedy": {"linestyle": ":", "marker": "x", "markersize": 3.5, "label": "greedy"},
}
_COLORS = (MUTED, AGENTS["epinet"].color, AGENTS["ensemble"].color)


def _draw_panel(ax: Axes, rows: Rows) -> None:
    """Draw what both rules lose at one temperature, for each number of actions."""
    for color, num_actions in zip(_COLORS, sorted({row["num_actions"] for row in rows}), strict=False):
        for rule, style in _STYLES.items():
            own = where(rows, num_actions=num_actions, rule=rule)
            horizons = sorted({row["horizon"] for row in own})
            points = [mean_over([row["lost"] for row in own if row["horizon"] == horizon]) for horizon in horizons]
            ax.errorbar(
                horizons,
                [mean for mean, _ in points],
                yerr=[error for _, error in points],
                color=color,
                linewidth=1.1,
                elinewidth=0.7,
                capsize=1.5,
                **style,
            )


def draw(rows: Rows) -> Figure:
    """Draw a panel for each temperature."""
    temperatures = sorted({row["temperature"] for row in rows})
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, len(temperatures), squeeze=False, sharey=True)[0]
    for ax, temperature in zip(axes, temperatures, strict=True):
        _draw_panel(ax, where(rows, temperature=temperature))
        ax.set(xscale="log", xlabel="steps")
        ax.set_ylim(bottom=0)
        horizons = sorted({row["horizon"] for row in rows})
        ax.set_xticks(horizons, [str(horizon) for horizon in horizons], fontsize=6.5)
        ax.minorticks_off()
        ax.set_title(f"$\\rho$ = {temperature:g}", fontsize=8)
    axes[0].set_ylabel("lost per step")
    rules = [Line2D([], [], color=INK, **style) for style in _STYLES.values()]
    sizes = [
        Line2D([], [], color=color, linewidth=3, label=f"{number} actions")
        for color, number in zip(_COLORS, sorted({row["num_actions"] for row in rows}), strict=False)
    ]
    figure.legend(handles=[*rules, *sizes], loc="outside upper center", ncols=5, fontsize=7)
    return figure
