"""Beyond the paper: how much of what could be known agents do not know, by their regret to the Bayes optimum."""

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, at_least, at_most
from ..configs.testbed import ABLATIONS, Variant, variant_of
from ..configs.testbed_limit import Limit
from ..limit import AGENTS as COMPARED
from ..limit import ablations_on, agents_on, claim_name, known, look, regret
from ..stats import PROBLEMS, UNKNOWN, Measurement, Rows
from ..style import MUTED
from . import testbed_limit


def _share_left(agent: str, metric: str) -> Callable[[Rows], Measurement]:
    """Return the measure of an agent's regret over that of a plain network, on the same problems."""

    def measure(rows: Rows) -> Measurement:
        optima = known(rows)
        agents = agents_on(optima)
        own, base = regret(agents, optima, agent, metric), regret(agents, optima, "mlp", metric)
        if not own or not base:
            return UNKNOWN
        return PROBLEMS.ratio(own, base, "regret")

    return measure


def _unlike_tuned(rows: Rows) -> Measurement:
    """Return by how much the best variant of Figure 9's epinet has less regret than the tuned one."""
    optima = known(rows)
    epinets = ablations_on(optima)
    tuned = regret(epinets, optima, "epinet")
    names = {str(row["label"]) for row in epinets} - {"epinet"}
    found = [PROBLEMS.difference(regret(epinets, optima, name), tuned, "regret", "regret") for name in sorted(names)]
    return min(found, key=lambda one: one.value) if found else UNKNOWN


ARTIFACT = Artifact(
    title="Regret to the Bayes optimum: what agents could know and do not",
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
        "Divergence minus that of the optimum on the same problems, with standard errors over seeds. Left, the agents "
        "of Figure 5, marginal above and joint below. Right, the epinets of Figure 9, on those of its problems whose "
        "posterior is known: one line per hyperparameter, the tuned epinet at the dotted line."
    ),
    tolerances=testbed_limit.ARTIFACT.tolerances,
    claims=(
        *(
            Claim(
                f"testbed_regret-{claim_name(agent)}",
                f"Of the joint regret of a plain network, {agent} leaves less than half.",
                f"joint regret, {agent} / mlp",
                _share_left(agent, "joint"),
                at_most(0.5),
            )
            for agent in COMPARED[1:]
        ),
        Claim(
            "testbed_regret-marginal",
            "In marginal predictions, too, the epinet leaves less than half of the regret of a plain network.",
            "marginal regret, epinet / mlp",
            _share_left("epinet", "marginal"),
            at_most(0.5),
        ),
        Claim(
            "testbed_regret-tuned",
            "No epinet of Figure 9 has less joint regret than the tuned one.",
            "joint regret, the best of the other epinets - the tuned one",
            _unlike_tuned,
            at_least(0),
        ),
    ),
)


def _bar(error: float) -> float:
    """Return the length of an error bar; one problem of each setting has no error."""
    return 0.0 if math.isnan(error) else error


def _draw_agents(ax: Axes, agents: Rows, optima: Rows, metric: str) -> None:
    """Draw the regret of each agent; zero is the optimum."""
    names = [agent for agent in COMPARED if any(row["label"] == agent for row in agents)]
    for place, name in enumerate(reversed(names)):
        mean, error = PROBLEMS.mean(regret(agents, optima, name, metric), "regret")
        ax.errorbar([mean], [place], xerr=[_bar(error)], capsize=2, **look(name, markersize=4.5))
    ax.axvline(0, color=MUTED, linewidth=1.0, linestyle="--", zorder=0)
    ax.set_yticks(range(len(names)), list(reversed(names)), fontsize=7)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_xlabel(f"{metric} regret, nats")


def _value(variant: Variant) -> str:
    """Return what tells a variant of the epinet, in a word."""
    (value,) = dict(variant.changes).values()
    return f"{value:g}" if not isinstance(value, tuple) else "x".join(str(width) for width in value)


def _draw_ablations(ax: Axes, optima: Rows) -> None:
    """Draw the regret of the epinets of Figure 9, one line for each hyperparameter."""
    epinets = ablations_on(optima)
    tuned = PROBLEMS.mean(regret(epinets, optima, "epinet"), "regret").value
    ax.axvline(tuned, color=MUTED, linewidth=1.0, linestyle=":", zorder=0)
    shown = [(name, [variant_of("epinet", **dict(changes)) for changes in sweep]) for name, sweep in ABLATIONS]
    for place, (_, variants) in enumerate(reversed(shown)):
        for number, variant in enumerate(variants):
            own = regret(epinets, optima, variant.label)
            if own:
                mean, error = PROBLEMS.mean(own, "regret")
                height = place + 0.3 - 0.6 * number / max(len(variants) - 1, 1)
                ax.errorbar([mean], [height], xerr=[_bar(error)], linewidth=0.8, **look("epinet", markersize=3))
                ax.annotate(
                    _value(variant), (mean + _bar(error), height), (3, -2), textcoords="offset points", fontsize=5
                )
    ax.set_xscale("log")
    ax.set_yticks(range(len(shown)), [name for name, _ in reversed(shown)], fontsize=7)
    ax.set_xlabel("joint regret, nats")


def draw(rows: Rows) -> Figure:
    """Draw the regrets of the agents of Figure 5, and of the epinets of Figure 9."""
    optima = known(rows)
    agents = agents_on(optima)
    figure = Figure(figsize=(6.75, 4.0))
    grid = figure.add_gridspec(2, 2)
    for line, metric in enumerate(("marginal", "joint")):
        _draw_agents(figure.add_subplot(grid[line, 0]), agents, optima, metric)
    right = figure.add_subplot(grid[:, 1])
    if ablations_on(optima):
        _draw_ablations(right, optima)
    return figure
