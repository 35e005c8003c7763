"""Beyond the paper: whether marginal or joint divergence tells how much regret an agent will have."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..artifact import Artifact, Tolerance
from ..configs.decisions import Thesis, thesis_variants
from ..configs.testbed import FEW
from ..rank_correlation import correlations, tables
from ..style import AGENTS, INK

ARTIFACT = Artifact(
    title="Marginal and joint divergence against regret",
    session="decisions",
    order=2,
    tiers={
        "smoke": Thesis(
            variants=FEW,
            input_dims=(2,),
            temperatures=(0.1,),
            num_problems=2,
            num_batches=20,
            num_actions=5,
            num_steps=20,
            batch_size=4,
        ),
        "laptop": Thesis(
            variants=thesis_variants((3, 10)),
            input_dims=(10,),
            num_problems=6,
            num_batches=200,
            num_actions=50,
            num_steps=500,
            batch_size=32,
        ),
        "paper": Thesis(),
    },
    seed=203,
    run="thesis:run",
    groups="groups",
    tolerances={
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "regret": Tolerance(absolute=0.3),
    },
    minutes={"smoke": 1, "laptop": 4, "paper": 300},
    data="problems of the Neural Testbed, and bandits with their true models",
    exact=True,
    caption=(
        "Each mark is an agent; small print is its number of particles, or the scale of its prior. A column "
        "is a temperature of the labels. Right, mean rank correlations, with the interval of nearly all "
        "resamples."
    ),
)

Rows = Sequence[Mapping[str, Any]]

_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_FILLS = ("full", "none", "left")


def _variants(rows: Rows) -> dict[str, tuple[str, str]]:
    """Return agent and short words for each label: the size of an ensemble, the prior scale of a changed epinet."""
    found = {}
    for row in rows:
        name, _, value = row["label"].partition("=")
        words = {"num_particles": value, "prior_scale": f"prior {float(value):g}" if value else ""}
        found[row["label"]] = (row["agent"], words.get(name.rpartition("-")[2], ""))
    return found


def _draw_panel(ax: Axes, rows: Rows, table: np.ndarray, metric: int, fill: Any) -> None:
    """Draw each agent in one setting, with standard errors over problems."""
    count = table.shape[1]
    means = table.mean(axis=1)
    errors = table.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(means)
    for (agent, words), mean, error in zip(_variants(rows).values(), means, errors, strict=True):
        place = mean[metric], mean[2]
        look = AGENTS[agent].line(linestyle="", label=None, fillstyle=fill, markersize=4.5)
        ax.errorbar(place[0], place[1], xerr=error[metric], yerr=error[2], elinewidth=0.5, capsize=0, **look)
        ax.annotate(words, place, (3, 2), textcoords="offset points", fontsize=5.5, color=INK)


def _draw_correlations(ax: Axes, rows: Rows) -> None:
    """Draw the rank correlations, with intervals that hold 95 percent of the resamples."""
    values, resamples = correlations(rows)
    for place, name in enumerate(_METRICS):
        look = AGENTS[name]
        ax.plot([place], [values[name]], color=look.color, marker=look.marker, markersize=6)
        if len(resamples[name]) > 100:
            ax.plot([place] * 2, np.quantile(resamples[name], (0.025, 0.975)), color=look.color, linewidth=1.5)
    ax.axhline(0.0, color=INK, linewidth=0.8, linestyle=":")
    ax.set_xticks(range(len(_METRICS)), list(_METRICS))
    ax.set_xlim(-0.6, len(_METRICS) - 0.4)
    ax.set_ylim(-1.05, 1.05)
    ax.set_ylabel("rank correlation with regret")


def draw(rows: Rows) -> Figure:
    """Draw a row of panels per divergence, one for each temperature; the dimension is the filling of the markers."""
    settings = tables(rows)
    dims = sorted({input_dim for input_dim, _ in settings})
    temperatures = sorted({temperature for _, temperature in settings})
    figure = Figure(figsize=(6.75, 4.6))
    grid = figure.add_gridspec(2, len(temperatures) + 1, width_ratios=(*[1] * len(temperatures), 0.75))
    for line, (metric, words) in enumerate(_METRICS.items()):
        for column, temperature in enumerate(temperatures):
            ax = figure.add_subplot(grid[line, column])
            for number, input_dim in enumerate(dims):
                if (input_dim, temperature) in settings:
                    table = settings[input_dim, temperature]
                    _draw_panel(ax, rows, table, list(_METRICS).index(metric), _FILLS[number % len(_FILLS)])
            ax.set_xlabel(words)
            ax.xaxis.set_major_locator(MaxNLocator(3, steps=(1, 2, 5, 10)))
            ax.set_ylim(bottom=0)
            if line == 0:
                ax.set_title(f"$\\rho$ = {temperature:g}, D = {', '.join(map(str, dims))}", fontsize=8)
            if column == 0:
                ax.set_ylabel("regret / uniform choice")
    last = figure.add_subplot(grid[:, -1])
    _draw_correlations(last, rows)
    for agent in dict.fromkeys(agent for agent, _ in _variants(rows).values()):
        last.plot([], [], **AGENTS[agent].line(linestyle=""))
    handles, names = last.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure
