"""Beyond the paper: the divergence of agents whose paper and code differ, in both readings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ..stratified import labels_of, mean_of
from ..style import AGENTS, MUTED

_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_WORDS = {
    "initializer=truncated_normal": "truncated normal",
    "stop_gradient=False": "no stop-gradient",
    "prior_variance=1.0": "prior variance 1",
    "prior_variance=10.0": "prior variance 10",
}
_AS_EVERYWHERE = {"epinet": "as in the paper", "sgmcmc": "prior variance 0.1"}


def _words(agent: str, label: str) -> str:
    """Return what a variant is, as its line in the figure."""
    known = [words for change, words in _WORDS.items() if label.endswith(f"-{change}")]
    return f"{agent}, {known[0] if known else _AS_EVERYWHERE[agent]}"


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw one line per variant; a dotted line marks each agent as it is everywhere else."""
    variants = [(agent, label) for agent in _AS_EVERYWHERE for label in labels_of(rows, agent)]
    places = range(len(variants))[::-1]
    figure = Figure(figsize=(6.75, 0.3 * len(variants) + 0.8))
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (metric, title) in zip(axes, _METRICS.items(), strict=True):
        for place, (agent, label) in zip(places, variants, strict=True):
            mean, error = mean_of(rows, label, metric)
            look = AGENTS[agent].line(label=None, linestyle="", markersize=5)
            ax.errorbar([mean], [place], xerr=[0.0 if math.isnan(error) else error], capsize=2, **look)
        for agent in _AS_EVERYWHERE:
            for label in labels_of(rows, agent)[:1]:
                ax.axvline(mean_of(rows, label, metric)[0], color=MUTED, linewidth=0.8, linestyle=":", zorder=0)
        ax.set_xlabel(title)
        ax.set_xlim(left=0)
        ax.set_ylim(-0.6, len(variants) - 0.4)
    axes[0].set_yticks(list(places), [_words(agent, label) for agent, label in variants])
    return figure
