"""Beyond the paper: whether marginal or joint divergence tells how much regret an agent will have."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Measure, at_least, equals
from ..configs.decisions import Thesis, many_variants, thesis_variants
from ..configs.testbed import FEW
from ..stats import Measurement, Rows, rank_correlation
from ..style import AGENTS, INK

_SEED = 203
_RANKED = ("marginal", "joint", "regret")
_NUM_RESAMPLES = 2000
# A rank correlation, or a difference of two, that is not larger than this counts as none.
_NONE = 0.3


def tables(rows: Rows) -> dict[tuple[int, float], np.ndarray]:
    """Return for each setting the metrics of each agent on each problem, of shape (agents, problems, metrics)."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    settings = sorted({(row["input_dim"], row["temperature"]) for row in rows})
    found = {}
    for setting in settings:
        own = [row for row in rows if (row["input_dim"], row["temperature"]) == setting]
        seeds = sorted({row["seed"] for row in own})
        table = np.full((len(labels), len(seeds), len(_RANKED)), np.nan)
        for row in own:
            table[labels.index(row["label"]), seeds.index(row["seed"])] = [float(row[name]) for name in _RANKED]
        # An agent that has failed is worse than all others.
        found[setting] = np.where(np.isnan(table), np.inf, table)
    return found


def _mean_correlations(own: Sequence[np.ndarray]) -> np.ndarray:
    """Return the correlations of marginal and joint divergence with regret, averaged over settings."""
    means = [table.mean(axis=1) for table in own]
    found = [[rank_correlation(table[:, number], table[:, 2]) for number in (0, 1)] for table in means]
    return np.array(found).mean(axis=0)


def correlations(rows: Rows) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the correlations with regret across agents, and resamples of them.

    Within each setting agents are ranked by their mean over problems; settings are not a sample of anything. Agents are
    drawn with replacement, the same in all settings, and problems within each setting, the same for all agents.
    """
    own = list(tables(rows).values())
    num_agents = own[0].shape[0]
    rng = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(_NUM_RESAMPLES if num_agents > 2 else 0):
        agents = rng.integers(num_agents, size=num_agents)
        problems = [rng.integers(table.shape[1], size=table.shape[1]) for table in own]
        drawn.append(
            _mean_correlations([table[agents][:, chosen] for table, chosen in zip(own, problems, strict=True)])
        )
    values = {name: float(value) for name, value in zip(_RANKED, _mean_correlations(own), strict=False)}
    resamples = np.array(drawn).reshape(-1, 2)
    resamples = resamples[np.isfinite(resamples).all(axis=1)]
    return values, dict(zip(_RANKED, resamples.T, strict=False))


def _spread(resamples: np.ndarray) -> float:
    """Return the standard error from resamples; NaN if there are too few."""
    return float(resamples.std(ddof=1)) if len(resamples) > 100 else math.nan


def _correlation(metric: str, other: str = "") -> Measure:
    """Return the rank correlation of a divergence with regret, or by how much it is larger than another one's."""

    def measure(rows: Rows) -> Measurement:
        values, resamples = correlations(rows)
        if other:
            return Measurement(values[metric] - values[other], _spread(resamples[metric] - resamples[other]))
        return Measurement(values[metric], _spread(resamples[metric]))

    return measure


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
            actions_per_dim=3,
            num_steps=20,
            batch_size=4,
        ),
        "laptop": Thesis(
            # The hypermodel takes as long as a third of all agents.
            variants=tuple(variant for variant in thesis_variants((3, 10)) if variant.agent != "hypermodel"),
            input_dims=(2,),
            num_problems=8,
            num_batches=200,
            num_steps=1000,
        ),
        # The error is mostly that of the number of agents, which are drawn again: many cheap ones, at the full length.
        "paper": Thesis(variants=many_variants(), input_dims=(2,), num_problems=10, num_batches=200),
    },
    seed=_SEED,
    run="thesis:run",
    groups="groups",
    tolerances={
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "regret": Tolerance(absolute=0.3),
    },
    minutes={"smoke": 1, "laptop": 4, "paper": 60},
    data="problems of the Neural Testbed, and bandits with their true models",
    exact=True,
    caption=(
        "Each mark is an agent, or a variant of it with another number of particles, scale of its prior, rate of "
        "dropout, factor of its decay, or dimension of its index. A column is a temperature of the labels. Right, "
        "mean rank correlations, with the interval of nearly all resamples. Where nearly every action is best, "
        "uniform choice has hardly any regret, and agents that settle for another action have many times as much."
    ),
    place="Section 2",
    claims=(
        Claim(
            "dec_thesis-joint",
            "Across agents, a larger joint divergence goes with more regret.",
            "rank correlation of joint KL and regret, mean over settings",
            _correlation("joint"),
            at_least(0, margin=_NONE),
        ),
        Claim(
            "dec_thesis-marginal",
            "Across agents, the marginal divergence says nothing about regret.",
            "rank correlation of marginal KL and regret, mean over settings",
            _correlation("marginal"),
            equals(0, tolerance=_NONE),
        ),
        Claim(
            "dec_thesis-beyond",
            "The joint divergence tells more about regret than the marginal one.",
            "rank correlation with regret, joint minus marginal",
            _correlation("joint", "marginal"),
            at_least(0, margin=_NONE),
        ),
    ),
)


_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_FILLS = ("full", "none", "left")
# More small print than this cannot be read.
_MOST_WORDS = 16

_WORDS = {"num_particles": "{:g}", "prior_scale": "prior {:g}", "rate": "rate {:g}"}


def _variants(rows: Rows) -> dict[str, tuple[str, str]]:
    """Return agent and short words for each label: the size of an ensemble, a changed scale or rate."""
    found = {}
    for row in rows:
        changes = [part.partition("=") for part in row["label"].split("-") if "=" in part]
        words = [_WORDS[name].format(float(value)) for name, _, value in changes if name in _WORDS]
        found[row["label"]] = (row["agent"], ", ".join(words))
    return found


def _draw_panel(ax: Axes, rows: Rows, table: np.ndarray, metric: int, fill: Any) -> None:
    """Draw each agent in one setting, with standard errors over problems."""
    count = table.shape[1]
    means = table.mean(axis=1)
    errors = table.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(means)
    variants = _variants(rows)
    for (agent, words), mean, error in zip(variants.values(), means, errors, strict=True):
        place = mean[metric], mean[2]
        look = AGENTS[agent].line(linestyle="", label=None, fillstyle=fill, markersize=4.5)
        ax.errorbar(place[0], place[1], xerr=error[metric], yerr=error[2], elinewidth=0.5, capsize=0, **look)
        if len(variants) <= _MOST_WORDS:
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
    ax.set_xticks(range(len(_METRICS)), list(_METRICS), fontsize=7)
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
            ax.set(xscale="log", yscale="log")
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
                axis.set_major_formatter(StrMethodFormatter("{x:g}"))
                axis.set_minor_formatter(NullFormatter())
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
