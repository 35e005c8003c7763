"""Beyond the paper: `sgmcmc` as a member of the authors' sweep, beside its released default, on the judged problems."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..aggregate import read_rows
from ..artifact import Artifact
from ..claims import Claim, Difference, at_least, at_most
from ..configs.testbed import TunedChains
from ..paths import REFERENCE
from ..stats import PROBLEMS, Measurement, Rows, where
from ..style import AGENTS, MUTED
from ._testbed import TESTBED

_OTHERS = ("epinet", "sgmcmc")


def _others(rows: Rows) -> Rows:
    """Return the accepted rows of Figure 5's epinet and released `sgmcmc` on the same problems."""
    path, problems = REFERENCE / "paper" / "fig05.csv", {row["problem"] for row in rows}
    accepted = read_rows(path) if path.exists() else []
    return [row for row in accepted if row["agent"] in _OTHERS and row["problem"] in problems]


def _minus(agent: str, metric: str, rows: Rows) -> Measurement:
    """Return another agent's mean divergence minus that of the tuned `sgmcmc`."""
    measure = Difference(metric, lambda rows: where(_others(rows), agent=agent), where, PROBLEMS)
    return measure(rows)


ARTIFACT = Artifact(
    title="sgmcmc tuned by the authors' sweep, beside its released default",
    session="testbed",
    order=3,
    tiers={"paper": TunedChains()},
    **TESTBED,
    minutes={"paper": 8},
    data="Neural Testbed",
    caption=("Each mark is a problem; on the line the two agents are level. Below it, the tuned `sgmcmc` is better."),
    claims=(
        Claim(
            "testbed_sgmcmc-released",
            "A member of the authors' sweep predicts jointly better than the released default, which is not in it.",
            "joint KL, released sgmcmc - tuned",
            lambda rows: _minus("sgmcmc", "joint", rows),
            at_least(0),
        ),
        Claim(
            "testbed_sgmcmc-marginal",
            "Its marginal predictions are better than the epinet's, too.",
            "marginal KL, epinet - tuned sgmcmc",
            lambda rows: _minus("epinet", "marginal", rows),
            at_least(0),
        ),
        Claim(
            "testbed_sgmcmc-finite",
            "No chain of the tuned sgmcmc diverges.",
            "runs with values that are not finite",
            lambda rows: Measurement(sum(float(row["nonfinite"]) > 0 for row in rows)),
            at_most(0),
        ),
    ),
)


def _draw_panel(ax: Axes, rows: Rows, agent: str, words: str) -> None:
    """Draw the joint divergence of the tuned chains over that of another agent, one mark per problem."""
    own = {row["problem"]: float(row["joint"]) for row in rows}
    other = {row["problem"]: float(row["joint"]) for row in where(_others(rows), agent=agent)}
    shared = sorted(own.keys() & other.keys())
    look = AGENTS[agent].line(label=None, linestyle="", markersize=3)
    ax.plot([other[problem] for problem in shared], [own[problem] for problem in shared], **look)
    ends = [min([*own.values(), 1.0]), max([*own.values(), 1.0])]
    ax.plot(ends, ends, color=MUTED, linewidth=0.8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(f"joint KL, {words}")


def draw(rows: Rows) -> Figure:
    """Draw the tuned chains against the released ones and against the epinet."""
    figure = Figure(figsize=(6.0, 2.8))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_panel(left, rows, "sgmcmc", "sgmcmc as released")
    _draw_panel(right, rows, "epinet", "epinet")
    left.set_ylabel("joint KL, sgmcmc tuned")
    return figure
