"""The epinet and what it is compared with on the same features."""

from matplotlib.figure import Figure

from ..over_bases import Rows, mean_of, shown, values_of
from ._replication import RECIPES, look_of, points, study_figure

ARTIFACT = study_figure(
    title="What an epinet is compared with on the same features",
    order=5,
    parts=("ensembles", "epinets", "controls"),
    minutes=10,
    caption=(
        "Gray bars are heads that are no epinets, or epinets without one of their parts; the dashed line is "
        "the largest ensemble."
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
        level, _ = mean_of([row for row in ensembles if row["size"] == largest], metric)
        look = look_of("ensemble")
        ax.axvline(level, color=look["color"], linestyle=look["linestyle"], label=f"ensemble of {largest}")
        ax.set_xlabel(words)
    axes[0].set_yticks(places, list(groups))
    handles, names = axes[1].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=7, loc="outside upper right")
    return figure
