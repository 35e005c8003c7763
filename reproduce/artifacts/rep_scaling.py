"""The paper's Figure 10 with real CIFAR-10 and trained ResNets."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..claims import Claim, Difference, Exact, at_most
from ..stats import BASES, Rows, values_of
from ..style import add_legend
from ._images import METRICS, label_cifar_sizes
from ._replication import RECIPES, epinets, errorbar, look_of, shown, study_figure

ARTIFACT = study_figure(
    title="Networks, ensembles and epinets on real CIFAR-10, against parameters",
    label="fig:cifar10_scaling",
    order=2,
    parts=("networks", "ensembles", "epinets"),
    minutes=15,
    caption=(
        "Here, and in the figures below, temperatures were chosen on held-out images, also for _released_ and"
        " _paper_, whose claims are about untuned ones."
    ),
    place="set here",
    claims=(
        Claim(
            "rep_scaling-released",
            "The released epinet on a ResNet-20 has a lower joint loss than an ensemble of 20, neither tuned.",
            "joint loss minus that of the 20-particle ensemble, tau = 10, M = 1000",
            Difference("difference", epinets("released", kind="untuned"), None, BASES),
            at_most(0),
            location="Section 6, Appendix G.3",
        ),
        Claim(
            "rep_scaling-paper",
            "The epinet with both of the paper's priors has a lower joint loss than an ensemble of 20, neither tuned.",
            "joint loss minus that of the 20-particle ensemble, tau = 10, M = 1000",
            Difference("difference", epinets("paper", kind="untuned"), None, BASES),
            at_most(0),
            location="Section 6, Appendix G.3",
        ),
        Claim(
            "rep_scaling-bar",
            "The cold epinet has a lower joint loss than an ensemble of 20, temperatures of both chosen held-out.",
            "joint loss minus that of the 20-particle ensemble, tau = 10, M = 1000",
            Difference("difference", epinets("cold"), None, BASES),
            at_most(0),
        ),
        Claim(
            "rep_scaling-strict",
            "If no temperature may raise its marginal loss, the epinet has a lower joint loss than an ensemble of 20.",
            "joint loss minus that of the 20-particle ensemble, tau = 10, M = 1000",
            Difference("difference", epinets("strict"), None, BASES),
            at_most(0),
        ),
        Claim(
            "rep_scaling-cost",
            "The cold epinet and its base have fewer than 1.2 particles' parameters.",
            "parameters in particles",
            Exact(lambda row: row["parameters"] / row["particle_parameters"], epinets("cold")),
            at_most(1.2),
        ),
        Claim(
            "rep_scaling-marginal",
            "The cold epinet does not degrade the marginal loss of its base at the base's own temperature.",
            "marginal loss minus the tempered base's",
            Difference("excess", epinets("cold"), None, BASES),
            at_most(0),
        ),
    ),
)


def _panel(ax: Axes, rows: Rows, metric: str) -> None:
    """Draw one loss against parameters."""
    series = [("network", shown(rows, part="networks"), "depth", look_of("network"))]
    ensembles = shown(rows, part="ensembles")
    for number, depth in enumerate(sorted(values_of(ensembles, "depth"))):
        look = {**look_of("ensemble"), "label": f"ensemble of ResNet-{depth}", "alpha": 1 - 0.5 * number}
        series.append(("ensemble", [row for row in ensembles if row["depth"] == depth], "size", look))
    for recipe in RECIPES:
        series.append(("epinet", shown(rows, part="epinets", recipe=recipe), "depth", look_of(f"epinet {recipe}")))
    for _, own, by, look in series:
        groups = [[row for row in own if row[by] == value] for value in sorted(values_of(own, by))]
        errorbar(ax, [BASES.mean(group, "parameters")[0] for group in groups], groups, metric, **look)
    label_cifar_sizes(ax)


def draw(rows: Rows) -> Figure:
    """Draw error, marginal and joint loss against parameters, temperatures chosen on held-out images."""
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, 3)
    for ax, (metric, words) in zip(axes, METRICS.items(), strict=True):
        _panel(ax, rows, metric)
        ax.set_xlabel("parameters")
        ax.set_ylabel(words)
        ax.set_ylim(bottom=0)
    add_legend(figure, axes[2], columns=4)
    return figure


def _cell(rows: Rows, metric: str) -> str:
    """Return a mean with its standard error."""
    mean, error = BASES.mean(rows, metric)
    return "" if math.isnan(mean) else f"{mean:.3f} ± {error:.3f}"


def _line(name: str, rows: Sequence[Any], untuned: Sequence[Any]) -> str:
    """Return one line of the table."""
    particles = [float(row["parameters"]) / float(row["particle_parameters"]) for row in rows]
    cost = f"{sum(particles) / len(particles):.2f}"
    cells = [name, cost, _cell(rows, "marginal"), _cell(rows, "joint"), _cell(rows, "difference")]
    return f"| {' | '.join([*cells, _cell(untuned, 'joint')])} |"


def table(rows: Rows) -> str:
    """Return the table of ensembles and epinets at tau = 10 and M = 1000, from the rows of `rep_scaling`."""
    lines = [
        "| | particles' parameters | marginal | joint | minus ensemble of 20 | joint, untuned |",
        "|---|---|---|---|---|---|",
    ]
    for part, by, label in (("ensembles", "size", "ensemble of {1} ResNet-{0}"), ("epinets", "recipe", "epinet {1}")):
        own, untuned = shown(rows, part=part), shown(rows, part=part, kind="untuned")
        for depth in sorted(values_of(own, "depth")):
            for value in values_of([row for row in own if row["depth"] == depth], by):
                wanted = {"depth": depth, by: value}
                pair = [[r for r in rs if all(r[k] == v for k, v in wanted.items())] for rs in (own, untuned)]
                name = label.format(depth, value) + (f", ResNet-{depth}" if part == "epinets" else "")
                lines.append(_line(name, *pair))
    return "\n".join(lines) + "\n"
