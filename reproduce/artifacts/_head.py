"""What the figures of the Pitman-Yor head on the testbed share: divergences of agents with and without it."""

import math

from matplotlib.axes import Axes

from ..stats import PROBLEMS, Rows, where
from ..style import AGENTS


def draw_scores(ax: Axes, judged: Rows) -> None:
    """Draw the joint divergence of each agent as it is, and of its mean predictions through the head, in white."""
    names = list(dict.fromkeys(row["label"] for row in judged))
    names.sort(key=lambda name: (name.removesuffix(" + head"), name), reverse=True)
    for place, name in enumerate(names):
        mean, error = PROBLEMS.mean(where(judged, label=name), "joint")
        look = AGENTS[name.removesuffix(" + head").partition("-")[0]].line(label=None, linestyle="", markersize=5)
        face = {"markerfacecolor": "white"} if name.endswith(" + head") else {}
        ax.errorbar([mean], [place], xerr=[0.0 if math.isnan(error) else error], capsize=2, **{**look, **face})
    ax.set_yticks(range(len(names)), [name.replace("-num_particles=", " of ") for name in names])
    ax.set_xlim(left=0)
    ax.set_xlabel("joint KL ($\\tau = 10$)")
