"""What the figures of the Pitman-Yor head on the testbed share: settings, divergences of agents with and without it."""

import math
from typing import Any

from matplotlib.axes import Axes

from ..artifact import Tolerance
from ..stats import PROBLEMS, Rows, where
from ..style import AGENTS
from ._testbed import TESTBED

HEAD: dict[str, Any] = {
    **TESTBED,
    "session": "testbed",
    "order": 1,
    "run": "testbed_head:score",
    "data": "Neural Testbed",
    "tolerances": {
        **TESTBED["tolerances"],
        "own_joint": Tolerance(absolute=0.1, relative=0.1),
        "own_joint_error": Tolerance(absolute=0.05, relative=0.2),
        "gain": Tolerance(absolute=0.1, relative=0.1),
    },
    "place": "Ours, Theorem 5, on the problems of Section 5",
}
"""Fields of the artifacts."""


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
