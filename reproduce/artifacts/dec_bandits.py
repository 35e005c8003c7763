"""Beyond the paper: regret of agents at equal and at matched compute, and of rules."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Choice, Claim, Difference, at_most
from ..configs.decisions import HEAD, THROUGH_HEAD, Bandits, BanditSize, bandit_variants
from ..configs.testbed import FEW, variant_of
from ..stats import SEEDS, Rows, where
from ..style import AGENTS, INK, MUTED, Look


def runs(bandit: str, agent: str = "epinet", rule: str = "thompson", compute: str = "equal") -> Choice:
    """Return the runs of an agent, of its largest variant if it has several."""

    def choose(rows: Rows) -> Rows:
        own = where(rows, row="run", bandit=bandit, agent=agent, rule=rule, compute=compute)
        sizes = {row["label"]: int(row["label"].rpartition("=")[2]) if "=" in row["label"] else 0 for row in own}
        return where(own, label=max(sizes, key=sizes.__getitem__)) if sizes else []

    return choose


# Two successes in a hundred steps, where there are a thousand of them. In the linear bandit the best action earns about
# three times as much as a success.
_MARGIN = 20
_LINEAR_MARGIN = 3 * _MARGIN

ARTIFACT = Artifact(
    title="Regret of agents at equal and at matched compute, and of rules",
    session="decisions",
    order=4,
    tiers={
        "smoke": Bandits(
            bandits=("neural",),
            variants=FEW,
            rules=("greedy",),
            size=BanditSize(num_steps=40, num_runs=2, actions_per_dim=1, pooling=4, batch_size=4, num_points=4),
        ),
        "laptop": Bandits(
            variants=bandit_variants((3, 10), 10),
            matched=("neural",),
            rules=("greedy", "epsilon-greedy"),
            with_rules=("neural",),
            size=BanditSize(num_steps=1000, num_runs=12, pooling=2),
        ),
        # Regret differs much between runs: many short ones decide more than a few long ones, which `dec_original` has.
        "paper": Bandits(
            variants=(
                variant_of("epinet"),
                variant_of("ensemble", num_particles=10),
                variant_of("ensemble+", num_particles=10),
                variant_of("mlp"),
                THROUGH_HEAD,
            ),
            matched=("neural",),
            rules=("greedy", "epsilon-greedy"),
            with_rules=("neural",),
            size=BanditSize(num_steps=1000, num_runs=64, pooling=2),
        ),
    },
    seed=201,
    run="bandits:run",
    groups="groups",
    tolerances={"regret": Tolerance(absolute=30, relative=0.3), "error": Tolerance(absolute=20, relative=0.5)},
    minutes={"smoke": 1, "laptop": 2, "paper": 15},
    data="linear and neural bandits, and one made of digits",
    exact=True,
    caption="Larger ensembles have fuller markers.",
    place="Section 2",
    claims=(
        Claim(
            "dec_bandits-linear-mlp",
            "In the linear bandit, an epinet has less regret than a conventional network.",
            "regret of epinet minus mlp, both by Thompson sampling",
            Difference("regret", runs("linear"), runs("linear", "mlp"), SEEDS),
            at_most(0, margin=_LINEAR_MARGIN),
        ),
        Claim(
            "dec_bandits-neural-mlp",
            "In the neural bandit, an epinet has less regret than a conventional network.",
            "regret of epinet minus mlp, both by Thompson sampling",
            Difference("regret", runs("neural"), runs("neural", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_bandits-digits-mlp",
            "In the bandit of digits, an epinet has less regret than a conventional network.",
            "regret of epinet minus mlp, both by Thompson sampling",
            Difference("regret", runs("digits"), runs("digits", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_bandits-linear-ensemble",
            "In the linear bandit, an epinet has less regret than the largest ensemble.",
            "regret of epinet minus the largest ensemble, with as many updates",
            Difference("regret", runs("linear"), runs("linear", "ensemble"), SEEDS),
            at_most(0, margin=_LINEAR_MARGIN),
        ),
        Claim(
            "dec_bandits-neural-ensemble",
            "In the neural bandit, an epinet has less regret than the largest ensemble.",
            "regret of epinet minus the largest ensemble, with as many updates",
            Difference("regret", runs("neural"), runs("neural", "ensemble"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_bandits-digits-ensemble",
            "In the bandit of digits, an epinet has less regret than the largest ensemble.",
            "regret of epinet minus the largest ensemble, with as many updates",
            Difference("regret", runs("digits"), runs("digits", "ensemble"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_bandits-matched",
            "In the neural bandit, an epinet has less regret than the largest ensemble with the same operations.",
            "regret of epinet minus the largest ensemble, at matched compute",
            Difference("regret", runs("neural"), runs("neural", "ensemble", compute="matched"), SEEDS),
            at_most(0, margin=_MARGIN),
        ),
        Claim(
            "dec_bandits-ensemble-plus",
            "In the neural bandit, an epinet has less regret than an ensemble with prior functions.",
            "regret of epinet minus ensemble+, with as many updates",
            Difference("regret", runs("neural"), runs("neural", "ensemble+"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_bandits-greedy",
            "In the neural bandit, Thompson sampling has less regret than the greedy rule.",
            "regret of the epinet by Thompson sampling minus greedy",
            Difference("regret", runs("neural"), runs("neural", rule="greedy"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_bandits-epsilon-greedy",
            "In the neural bandit, Thompson sampling has less regret than the epsilon-greedy rule.",
            "regret of the epinet by Thompson sampling minus epsilon-greedy",
            Difference("regret", runs("neural"), runs("neural", rule="epsilon-greedy"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_bandits-neural-head",
            "In the neural bandit, a conventional network has less regret through a Pitman-Yor head than without.",
            "regret of mlp by Thompson sampling, through the head minus without it",
            Difference("regret", runs("neural", HEAD), runs("neural", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_bandits-digits-head",
            "In the bandit of digits, a conventional network has less regret through a Pitman-Yor head than without.",
            "regret of mlp by Thompson sampling, through the head minus without it",
            Difference("regret", runs("digits", HEAD), runs("digits", "mlp"), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
        Claim(
            "dec_bandits-neural-epinet-head",
            "In the neural bandit, an epinet has less regret than a conventional network through a Pitman-Yor head.",
            "regret by Thompson sampling, epinet minus mlp through the head",
            Difference("regret", runs("neural"), runs("neural", HEAD), SEEDS),
            at_most(0, margin=_MARGIN),
            location="beyond the paper",
        ),
    ),
)


_BANDITS = {
    "linear": "linear bandit",
    "neural": "neural bandit",
    "digits": "bandit of digits",
    "fashion": "Fashion-MNIST",
}
_AGENT_ORDER = ("mlp", HEAD, "dropout", "ensemble", "ensemble+", "epinet")
# Larger ensembles have fuller markers.
_FILLS = {"3": "none", "10": "left", "30": "full"}

_RULES = {
    "thompson": Look(color=AGENTS["epinet"].color, marker="o", linestyle="-", label="Thompson sampling"),
    "ucb": Look(color=INK, marker="^", linestyle="--", label="upper confidence bound"),
    "ids": Look(color=MUTED, marker="D", linestyle="-", label="information-directed"),
    "epsilon-greedy": Look(color=MUTED, marker="s", linestyle=":", label="epsilon-greedy"),
    "greedy": Look(color=INK, marker="x", linestyle=":", label="greedy"),
}

_SMALL = {"fontsize": 6, "title_fontsize": 6.5, "labelspacing": 0.25, "borderaxespad": 0.0}


def _curve(ax: Axes, rows: Rows, look: dict[str, Any], *, shift: int) -> None:
    """Draw a regret curve, with a marker and an error bar at some of its points."""
    own = sorted(rows, key=lambda row: row["step"])
    bars = [0.0 if math.isnan(row["error"]) else row["error"] for row in own]
    every = max(1, len(own) // 4)
    steps, regrets = [row["step"] for row in own], [row["regret"] for row in own]
    style = {"markersize": 4, "capsize": 2, "linewidth": 1.2, "elinewidth": 0.8, "markevery": (shift % every, every)}
    ax.errorbar(steps, regrets, yerr=bars, errorevery=(shift % every, every), **style, **look)


def _agents(rows: Rows) -> list[tuple[str, dict[str, Any]]]:
    """Return the label and the look of each agent, in a fixed order."""
    found = []
    for agent in _AGENT_ORDER:
        labels = {row["label"] for row in rows if row["agent"] == agent}
        for label in sorted(labels, key=lambda label: int(label.rpartition("=")[2] or 0) if "=" in label else 0):
            size = label.rpartition("=")[2] if "=" in label else ""
            words = f"{agent} of {size}" if size else AGENTS[agent].label
            found.append((label, AGENTS[agent].line(label=words, fillstyle=_FILLS.get(size, "full"))))
    return found


def _draw_agents(ax: Axes, rows: Rows, bandit: str, compute: str) -> None:
    """Draw all agents in a bandit; the epinet is the measure of matched compute."""
    own = [row for row in rows if row["bandit"] == bandit and row["rule"] == "thompson"]
    for shift, (label, look) in enumerate(_agents(own)):
        wanted = "equal" if label == "epinet" else compute
        curve = [row for row in own if row["label"] == label and row["compute"] == wanted]
        if curve:
            _curve(ax, curve, look, shift=shift)


def _draw_rules(ax: Axes, rows: Rows, bandit: str) -> None:
    """Draw the epinet with all rules."""
    own = [row for row in rows if row["bandit"] == bandit and row["label"] == "epinet"]
    for shift, (rule, look) in enumerate(_RULES.items()):
        curve = [row for row in own if row["rule"] == rule]
        if curve:
            _curve(ax, curve, look.line(), shift=shift)


def draw(rows: Rows) -> Figure:
    """Draw one panel per bandit and comparison, and the legends in panels of their own."""
    curves = [row for row in rows if row["row"] == "curve"]
    panels = [("equal", bandit) for bandit in _BANDITS if any(row["bandit"] == bandit for row in curves)]
    for kind, column in (("matched", "compute"), ("rules", "rule")):
        other = {row["bandit"] for row in curves if row[column] not in ("equal", "thompson")}
        panels += [(kind, bandit) for bandit in _BANDITS if bandit in other]
    num_columns = min(3, len(panels) + 1)
    num_rows = -(-(len(panels) + 1) // num_columns)
    figure = Figure(figsize=(2.25 * num_columns, 2.35 * num_rows))
    axes = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    titles = {"equal": "equal updates", "matched": "matched operations", "rules": "rules, epinet"}
    legends: dict[str, Axes] = {}
    for ax, (kind, bandit) in zip(axes, panels, strict=False):
        if kind == "rules":
            _draw_rules(ax, curves, bandit)
        else:
            _draw_agents(ax, curves, bandit, kind)
        name = "rules" if kind == "rules" else "agents"
        # Not every agent has a place in every bandit.
        legends[name] = max(legends.get(name, ax), ax, key=lambda own: len(own.get_legend_handles_labels()[0]))
        ax.set_title(f"{_BANDITS[bandit]}, {titles[kind]}", fontsize=8)
        ax.set_xlabel("step")
        ax.set_ylabel("regret")
        ax.set_ylim(bottom=0)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    last = axes[len(panels)]
    # One above the other, and both a little beyond the empty panel.
    for name, place, anchor in (("agents", "upper left", (0, 1.12)), ("rules", "lower left", (0, -0.2))):
        if name in legends:
            handles, words = legends[name].get_legend_handles_labels()
            legend = last.legend(handles, words, loc=place, bbox_to_anchor=anchor, title=name, **_SMALL)
            # As the legend of the axes it would give way to the next one, or be drawn twice.
            legend.remove()
            last.add_artist(legend)
    return figure
