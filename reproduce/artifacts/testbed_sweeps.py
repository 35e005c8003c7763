"""Beyond the paper: the authors' sweeps of the agents that Adam trains, on problems that are not judged."""

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from ..artifact import Artifact
from ..claims import Claim, at_least
from ..configs.testbed_sweeps import SWEEPS, Sweeps, member_of
from ..stats import UNKNOWN, Measurement, Paired, Rows, where
from ..style import AGENTS, MUTED
from ._testbed import TESTBED, labels_of

_PAIRED = Paired(by=("problem",))


def best(rows: Rows, agent: str) -> str:
    """Return the label of the member with the smallest mean joint divergence, the released agent included."""
    return min(labels_of(rows, agent), key=lambda label: _PAIRED.mean(where(rows, label=label), "joint").value)


def _gain(rows: Rows, agent: str) -> Measurement:
    """Return the joint divergence of the best of the other members minus that of the released agent."""
    released = member_of(agent).label
    others = [row for row in where(rows, agent=agent) if row["label"] != released]
    own = where(rows, label=released)
    if not own or not others:
        return UNKNOWN
    return _PAIRED.difference(where(rows, label=best(others, agent)), own, "joint", "joint")


ARTIFACT = Artifact(
    title="The authors' sweeps of dropout, bbb, hypermodel and ensemble+, on problems with other seeds",
    session="testbed",
    order=3,
    tiers={"paper": Sweeps()},
    # As everywhere on the testbed, with a seed of its own: what is chosen here is judged on other problems.
    **{**TESTBED, "seed": 54, "records": ""},
    minutes={"paper": 12},
    data="problems that are not judged",
    caption=(
        "Mean joint divergence of each member of a sweep over that of the released agent, at the line; what a member "
        "changes is beside it. Problems are small, with few inputs and examples."
    ),
    claims=tuple(
        Claim(
            f"testbed_sweeps-{agent.replace('+', '-plus')}",
            f"No other member of the authors' sweep of {agent} predicts jointly better than the released one.",
            f"joint KL, the best other member - {agent} as released",
            lambda rows, agent=agent: _gain(rows, agent),
            at_least(0),
        )
        for agent in SWEEPS
    ),
)


def _words(label: str, released: str) -> str:
    """Return what a member changes."""
    return label.removeprefix(released).removeprefix("-").replace("-", ", ").replace("_", " ")


def draw(rows: Rows) -> Figure:
    """Draw the ratio of each member to the released agent, one panel per agent."""
    figure = Figure(figsize=(6.75, 4.6))
    agents = [agent for agent in SWEEPS if labels_of(rows, agent)]
    for ax, agent in zip(figure.subplots(2, 2, squeeze=False).flat, agents, strict=False):
        released = member_of(agent).label
        own = where(rows, label=released)
        members = [label for label in labels_of(rows, agent) if label != released]
        for place, label in enumerate(reversed(members)):
            ratio, error = _PAIRED.ratio(where(rows, label=label), own, "joint")
            ax.errorbar([ratio], [place], xerr=[error], capsize=2, **AGENTS[agent].line(label=None, linestyle=""))
        ax.axvline(1, color=MUTED, linewidth=0.8)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator([1, 2, 4]))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
        ax.set_yticks(range(len(members)), [_words(label, released) for label in reversed(members)], fontsize=5.5)
        ax.set_title(agent, fontsize=8)
        ax.set_xlabel("joint KL / that of the released agent", fontsize=7)
    return figure
