"""Beyond the paper: the Bayes optimum of the testbed's problems, and how near each agent is to it."""

import math
from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..artifact import Artifact, Tolerance
from ..claims import Claim, at_least, at_most
from ..configs.testbed_limit import Limit
from ..limit import AGENTS, agents_on, claim_name, has_converged, known, nearest, over_optimum, settings_of
from ..stats import UNKNOWN, Measurement, Rows, uniformity
from ..style import INK, MUTED

_NEAR = 1.1
_FAR = 2
_TEMPERATURES = (0.01, 0.1, 0.5)
_SHAPES = ((2, 1), (2, 10), (2, 100), (10, 1), (10, 10), (10, 100), (100, 1), (100, 10))
_COUNTED = ("mlp", "ensemble+", "epinet", "sgmcmc")


def _ratio(agent: str, metric: str = "joint") -> Callable[[Rows], Measurement]:
    """Return the measure of an agent's mean divergence over that of the optimum."""

    def measure(rows: Rows) -> Measurement:
        optima = known(rows)
        return over_optimum(agents_on(optima), optima, agent, metric)

    return measure


def _nearest(**wanted: Any) -> Callable[[Rows], Measurement]:
    """Return the measure of the nearest agent's mean divergence over that of the optimum, where rows are as wanted."""

    def measure(rows: Rows) -> Measurement:
        optima = known(rows)
        return nearest(agents_on(optima), optima, **wanted)[1]

    return measure


def _by_setting(rows: Rows, agent: str = "") -> list[float]:
    """Return the ratio of an agent, or of the nearest one, to the optimum at each setting."""
    optima = known(rows)
    agents = agents_on(optima)
    found = []
    for input_dim, data_ratio, temperature in settings_of(optima):
        wanted = {"input_dim": input_dim, "data_ratio": data_ratio, "temperature": temperature}
        own = over_optimum(agents, optima, agent, **wanted) if agent else nearest(agents, optima, **wanted)[1]
        found.append(own.value)
    return [value for value in found if not math.isnan(value)]


def _share_near(agent: str) -> Callable[[Rows], Measurement]:
    """Return the measure of the share of the settings at which an agent is near the optimum."""

    def measure(rows: Rows) -> Measurement:
        ratios = _by_setting(rows, agent)
        return Measurement(sum(ratio <= _NEAR for ratio in ratios) / len(ratios)) if ratios else UNKNOWN

    return measure


def _farthest(rows: Rows) -> Measurement:
    """Return the ratio of the nearest agent to the optimum at the setting where it is largest."""
    return Measurement(max(_by_setting(rows), default=math.nan))


def _smallest(rows: Rows) -> Measurement:
    """Return the smallest ratio of an agent to the optimum over all problems."""
    optima = known(rows)
    return nearest(agents_on(optima), optima)[1]


def _calibration(rows: Rows) -> Measurement:
    """Return the p-value of uniform ranks, of all problems whether their chains agree or not."""
    return Measurement(uniformity([float(row["rank"]) for row in rows])) if rows else UNKNOWN


ARTIFACT = Artifact(
    title="The Bayes optimum of the testbed, and how near each agent is",
    session="testbed",
    order=4,
    seed=5,
    tiers={"paper": Limit()},
    run="testbed_limit:score",
    groups="groups",
    records="testbed",
    minutes={"paper": 20},
    data="Neural Testbed, problems whose posterior has been sampled",
    caption=(
        "Divergence over that of the posterior of the true model, means over the problems of a setting: $D$ "
        "inputs, $lambda$ examples for each, labels of temperature $rho$. Frames mark agents near the optimum by "
        "the rule of the claims. Problems without posterior samples, or whose chains disagree, are omitted."
    ),
    tolerances={
        **{name: Tolerance(absolute=0.03, relative=0.15) for name in ("joint", "first_joint", "second_joint")},
        "joint_error": Tolerance(absolute=0.05, relative=0.2),
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "marginal_error": Tolerance(absolute=0.01, relative=0.2),
        "median_r_hat": Tolerance(absolute=0.1),
        "largest_r_hat": Tolerance(absolute=1),
        "rank": Tolerance(absolute=0.1),
        "acceptance": Tolerance(absolute=0.1),
        "log_evidence": Tolerance(absolute=1, relative=0.1),
        "gradients": Tolerance(relative=0.2),
        "seconds": Tolerance(absolute=math.inf),
    },
    claims=(
        Claim(
            "testbed_limit-covered",
            "The posterior is known on two thirds of the testbed's problems.",
            "problems whose chains agree, of 180",
            lambda rows: Measurement(len(known(rows))),
            at_least(120),
        ),
        Claim(
            "testbed_limit-converged",
            "Chains agree on every problem: R-hat of predictions, and the divergences of two independent runs.",
            "share of problems whose chains disagree",
            lambda rows: Measurement(sum(not has_converged(row) for row in rows) / len(rows)) if rows else UNKNOWN,
            at_most(0),
        ),
        Claim(
            "testbed_limit-calibrated",
            "The truth is one more sample of the posterior: its ranks are uniform over problems.",
            "p-value of the Kolmogorov-Smirnov test of the ranks",
            _calibration,
            at_least(0.01),
        ),
        Claim(
            "testbed_limit-lowest",
            "No agent is below the optimum.",
            "smallest joint divergence of an agent / the optimum's",
            _smallest,
            at_least(1),
        ),
        *(
            Claim(
                f"testbed_limit-{claim_name(agent)}",
                f"The joint prediction of {agent} is within 10 percent of the optimum.",
                f"joint divergence of {agent} / the optimum's",
                _ratio(agent),
                at_most(_NEAR),
            )
            for agent in AGENTS
        ),
        Claim(
            "testbed_limit-mlp-marginal",
            "The marginal prediction of a plain network is within 10 percent of the optimum.",
            "marginal divergence of mlp / the optimum's",
            _ratio("mlp", "marginal"),
            at_most(_NEAR),
        ),
        *(
            Claim(
                f"testbed_limit-rho{temperature:g}",
                f"With labels of temperature {temperature:g}, some agent is within 10 percent of the optimum.",
                "joint divergence of the nearest agent / the optimum's",
                _nearest(temperature=temperature),
                at_most(_NEAR),
            )
            for temperature in _TEMPERATURES
        ),
        *(
            Claim(
                f"testbed_limit-d{input_dim}-lambda{data_ratio}",
                f"With {input_dim} inputs and {data_ratio} examples for each, some agent is within 10 percent.",
                "joint divergence of the nearest agent / the optimum's",
                _nearest(input_dim=input_dim, data_ratio=data_ratio),
                at_most(_NEAR),
            )
            for input_dim, data_ratio in _SHAPES
        ),
        *(
            Claim(
                f"testbed_limit-{claim_name(agent)}-settings",
                f"At most of the settings, {agent} is within 10 percent of the optimum.",
                f"share of the settings at which the joint divergence of {agent} is",
                _share_near(agent),
                at_least(0.5),
            )
            for agent in _COUNTED
        ),
        Claim(
            "testbed_limit-everyone",
            "There is no setting at which every agent has twice the divergence of the optimum.",
            "joint divergence of the nearest agent / the optimum's, at the setting where it is largest",
            _farthest,
            at_most(_FAR),
        ),
    ),
)


def _text(value: float) -> str:
    """Return a ratio as the table has it."""
    return "" if math.isnan(value) else f"{value:.2f}" if value < 9.95 else f"{value:.0f}"


def _draw_table(ax: Axes, agents: Rows, optima: Rows, metric: str) -> None:
    """Draw the table of one metric: agents over settings."""
    settings = settings_of(optima)
    names = [agent for agent in AGENTS if any(row["label"] == agent for row in agents)]
    for column, (input_dim, data_ratio, temperature) in enumerate(settings):
        wanted = {"input_dim": input_dim, "data_ratio": data_ratio, "temperature": temperature}
        for line, agent in enumerate(names):
            value = over_optimum(agents, optima, agent, metric, **wanted).value
            # White at the optimum, the darkest gray at ten times its divergence.
            shade = 0.0 if math.isnan(value) else min(max(math.log10(value), 0.0), 1.0)
            ax.add_patch(Rectangle((column, -line - 1), 1, 1, facecolor=str(1 - 0.75 * shade), edgecolor="white"))
            color = "white" if shade > 0.6 else INK
            ax.text(column + 0.5, -line - 0.5, _text(value), ha="center", va="center", fontsize=5, color=color)
            if value <= _NEAR:
                ax.add_patch(Rectangle((column, -line - 1), 1, 1, fill=False, edgecolor=INK, linewidth=1.0, zorder=3))
        best = [float(row[metric]) for row in optima if all(row[name] == own for name, own in wanted.items())]
        ax.text(column + 0.5, 0.15, f"{sum(best) / len(best):.2f}", ha="center", fontsize=5, color=MUTED)
    ax.text(-0.2, 0.15, f"optimum, {metric}", ha="right", fontsize=6.5, color=MUTED)
    ax.set_yticks([-line - 0.5 for line in range(len(names))], names, fontsize=7)
    words = [f"{temperature:g}\n{input_dim}\n{data_ratio:g}" for input_dim, data_ratio, temperature in settings]
    ax.set_xticks([column + 0.5 for column in range(len(settings))], words, fontsize=5.5)
    ax.text(-0.2, -len(names) - 0.25, "$\\rho$\n$D$\n$\\lambda$", ha="right", va="top", fontsize=5.5)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.set_xlim(0, max(len(settings), 1))
    ax.set_ylim(-len(names), 0.8)
    for side in ax.spines.values():
        side.set_visible(False)


def draw(rows: Rows) -> Figure:
    """Draw tables of ratios: agents over settings, darker where more is left to gain, framed where little is."""
    optima = known(rows)
    agents = agents_on(optima)
    lines = sum(any(row["label"] == agent for row in agents) for agent in AGENTS)
    figure = Figure(figsize=(6.75, 0.4 * lines + 1.8))
    for ax, metric in zip(figure.subplots(2, 1), ("joint", "marginal"), strict=True):
        _draw_table(ax, agents, optima, metric)
    return figure
