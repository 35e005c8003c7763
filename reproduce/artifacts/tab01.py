"""Table 1: the agents of the testbed, from their registry."""

from typing import Any

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..configs import AgentSummary
from ..stats import Rows
from ..style import AGENTS, INK

ARTIFACT = Artifact(
    title="The agents of the testbed",
    label="tab:agent_summary",
    session="testbed",
    order=-1,
    tiers={"smoke": AgentSummary(), "laptop": AgentSummary(), "paper": AgentSummary()},
    seed=11,
    run="agent_table:summarize",
    minutes={"smoke": 0.1, "laptop": 0.1, "paper": 0.1},
    data="generated from the registry of agents",
    exact=True,
    caption=(
        "Counts are for a problem with as many inputs as in Figure 4, and for the largest ensembles. In the last "
        'line, "this paper" is the reproduced one.'
    ),
)

_COLUMNS = {
    "agent": "agent",
    "description": "description",
    "hyperparameters": "hyperparameters",
    "parameters": "parameters",
    "steps": "steps",
    "flops": "training FLOPs",
}
_STARTS = (0.0, 0.115, 0.36, 0.785, 0.885, 1.0)


def _cell(column: str, value: Any) -> str:
    """Return a cell as text."""
    if column == "flops":
        return f"{value:.1e}"
    return f"{value:,}" if column in ("parameters", "steps") else str(value)


def draw(rows: Rows) -> Figure:
    """Draw the table; counts are for 10 inputs and 100 examples."""
    figure = Figure(figsize=(9.0, 0.27 * (len(rows) + 3)))
    ax = figure.subplots()
    ax.set_axis_off()
    ax.set_xlim(0, 1)
    ax.set_ylim(len(rows) + 0.5, -0.7)
    lines = [_COLUMNS, *({name: _cell(name, row[name]) for name in _COLUMNS} for row in rows)]
    for number, line in enumerate(lines):
        for start, (name, text) in zip(_STARTS, line.items(), strict=True):
            right = name in ("parameters", "steps", "flops")
            color = AGENTS[text].color if number and name == "agent" else INK
            weight = "bold" if number == 0 or name == "agent" else "normal"
            place = {"ha": "right" if right else "left", "va": "center", "fontsize": 8}
            ax.text(start, number - 0.2, text, color=color, fontweight=weight, **place)
    ax.axhline(0.3, color=INK, linewidth=0.8)
    return figure
