"""Beyond the paper: the best members of the authors' sweeps beside the epinet, on the judged problems."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Claim, at_most
from ..configs.testbed_sweeps import SWEPT, Swept, member_of
from ..limit import accepted_agents
from ..stats import PROBLEMS, UNKNOWN, Measurement, Rows, where
from ..style import AGENTS, INK
from ._testbed import TESTBED


def _pair(rows: Rows, agent: str) -> tuple[Rows, Rows]:
    """Return the rows of the best member of an agent's sweep, and of the agent as released, on the same problems."""
    return where(rows, label=member_of(agent, SWEPT[agent]).label), _released(rows, member_of(agent).label)


def _released(rows: Rows, label: str) -> list[Mapping[str, Any]]:
    """Return the accepted rows of an agent of Figure 5 on the problems of these rows."""
    return where(accepted_agents({row["problem"] for row in rows}), label=label)


def _minus(first: Rows, second: Rows) -> Measurement:
    """Return the paired difference of two mean joint divergences."""
    return PROBLEMS.difference(first, second, "joint", "joint") if first and second else UNKNOWN


ARTIFACT = Artifact(
    title="dropout, bbb, hypermodel and ensemble+ tuned by the authors' sweeps, beside the epinet",
    session="testbed",
    order=3,
    tiers={"paper": Swept()},
    **TESTBED,
    minutes={"paper": 6},
    data="Neural Testbed, problems with up to ten examples per input",
    caption=(
        "Mean joint divergence of agents as released (filled), and as the best member of the authors' sweep on other "
        "problems (white); the line is the epinet. `ensemble+` has the number of particles of its sweep."
    ),
    claims=(
        *(
            Claim(
                f"testbed_swept-{agent.replace('+', '-plus')}",
                f"Where data are few, the epinet predicts jointly better than {agent}, tuned by the authors' sweep.",
                f"joint KL, epinet - best member of the sweep of {agent}",
                lambda rows, agent=agent: _minus(_released(rows, "epinet"), _pair(rows, agent)[0]),
                at_most(0),
            )
            for agent in SWEPT
        ),
        *(
            Claim(
                f"testbed_swept-{agent.replace('+', '-plus')}-released",
                f"There, the sweep finds no member that predicts jointly better than {agent} as released.",
                f"joint KL, {agent} as released - best member of its sweep",
                lambda rows, agent=agent: _minus(*reversed(_pair(rows, agent))),
                at_most(0),
            )
            for agent in SWEPT
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw each agent as released and tuned, over the epinet."""
    figure = Figure(figsize=(4.5, 2.4))
    ax = figure.subplots()
    agents = [agent for agent in SWEPT if _pair(rows, agent)[0]]
    for place, agent in enumerate(reversed(agents)):
        for own, shift, face in zip(_pair(rows, agent), (-0.15, 0.15), ("white", None), strict=True):
            if own:
                mean, error = PROBLEMS.mean(own, "joint")
                look = AGENTS[agent].line(label=None, linestyle="", markerfacecolor=face)
                ax.errorbar([mean], [place + shift], xerr=[error], capsize=2, **look)
    epinet = _released(rows, "epinet")
    if epinet:
        ax.axvline(PROBLEMS.mean(epinet, "joint").value, color=INK, linewidth=0.8)
    ax.set_yticks(range(len(agents)), list(reversed(agents)))
    ax.set_xlabel("joint KL ($\\tau = 10$)")
    return figure
