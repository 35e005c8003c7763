"""The epinet and what it is compared with on the same features."""

from matplotlib.figure import Figure

from ..claims import Claim, Difference, at_most, select
from ..stats import BASES, Bases, Rows, values_of
from ._replication import NUM_SAMPLES, RECIPES, TAU, epinets, look_of, points, shown, study_figure

_CONTROLS = {
    "prior": ("epinet without prior", "the same without a prior"),
    "training": ("epinet without training", "the same without training"),
    "head": ("deterministic head", "a deterministic head of its capacity"),
    "heads": ("linear heads", "as large an ensemble of linear heads"),
    "laplace": ("last-layer Laplace", "last-layer Laplace"),
    "het": ("heteroscedastic head", "a heteroscedastic head"),
    "sngp": ("SNGP head", "a Gaussian-process head"),
    "dropout": ("dropout on features", "dropout on the features"),
}
"""What the claims are about: the agent of each, and what a sentence calls it."""


def _against(agent: str) -> Difference:
    """Compare the cold epinet with a control on the same bases."""
    control = select(part="controls", agent=agent, kind="tuned", tau=TAU, indices=NUM_SAMPLES)
    return Difference("joint", epinets("cold", depth=None), control, Bases(match="network"))


ARTIFACT = study_figure(
    title="What an epinet is compared with on the same features",
    order=5,
    parts=("ensembles", "epinets", "controls"),
    minutes=10,
    caption=(
        "Gray bars are other heads, or epinets without one of their parts; the dashed line is the largest ensemble."
    ),
    place="set here",
    claims=tuple(
        Claim(
            f"rep_controls-{name}",
            f"On the same features, the cold epinet has a lower joint loss than {words}.",
            "joint loss minus the control's, tau = 10, M = 1000, tuned",
            _against(agent),
            at_most(0),
        )
        for name, (agent, words) in _CONTROLS.items()
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw joint and marginal loss of every control on the same bases, with the largest ensemble as a line."""
    controls = shown(rows, part="controls")
    bases = set(values_of(controls, "network"))
    epinets = [row for row in shown(rows, part="epinets") if row["network"] in bases]
    groups = {f"epinet, {recipe}": [row for row in epinets if row["recipe"] == recipe] for recipe in RECIPES}
    groups |= {name: [row for row in controls if row["agent"] == name] for name in values_of(controls, "agent")}
    ensembles = shown(rows, part="ensembles", depth=min(row["depth"] for row in controls))
    largest = max(values_of(ensembles, "size"))
    figure = Figure(figsize=(6.75, 0.25 * len(groups) + 1.1))
    axes = figure.subplots(1, 2, sharey=True)
    places = list(range(len(groups)))[::-1]
    colors = [look_of(name.replace(",", "")).get("color") for name in groups]
    for ax, (metric, words) in zip(
        axes, {"joint": "joint log-loss, $\\tau = 10$", "marginal": "marginal log-loss"}.items(), strict=True
    ):
        means, errors = points(list(groups.values()), metric)
        ax.barh(places, means, xerr=errors, color=colors, height=0.6, error_kw={"capsize": 2, "linewidth": 0.8})
        level, _ = BASES.mean([row for row in ensembles if row["size"] == largest], metric)
        look = look_of("ensemble")
        ax.axvline(level, color=look["color"], linestyle=look["linestyle"], label=f"ensemble of {largest}")
        ax.set_xlabel(words)
    axes[0].set_yticks(places, list(groups))
    handles, names = axes[1].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=7, loc="outside upper right")
    return figure
