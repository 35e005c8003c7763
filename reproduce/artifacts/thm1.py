"""Theorem 1: what three agents earn, against the number of labels."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Difference, Exact, at_least, at_most, equals, select
from ..closed_forms import guess_reward, largest_reward
from ..configs import unit_of
from ..stats import Each, Rows
from ..style import AGENTS


@dataclass(frozen=True, kw_only=True)
class MarginalsInsufficientRun:
    """Theorem 1 at one `tau`.

    Attributes:
        tau: number of labels.
        logit_gap: difference of the logits where the ENN is certain.
        num_samples: label combinations that a Monte Carlo agent draws before it acts.
        num_replicas: how often a Monte Carlo agent acts.
    """

    tau: int
    logit_gap: float
    num_samples: int
    num_replicas: int


@dataclass(frozen=True, kw_only=True)
class MarginalsInsufficient:
    """Theorem 1: the decision problem in which marginals do not help."""

    taus: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10)
    logit_gap: float = 40.0
    num_samples: int = 32
    num_replicas: int = 100_000

    def units(self) -> Mapping[str, MarginalsInsufficientRun]:
        """Return one run per `tau`."""
        return {f"tau{tau:02d}": unit_of(MarginalsInsufficientRun, self, tau=tau) for tau in self.taus}


_MARGINAL, _RANDOM = select(agent="marginal", reward="scaled"), select(agent="random", reward="scaled")
_SAMPLED = Each(("tau",), error="standard_error", averaged=True)

ARTIFACT = Artifact(
    title="A decision problem in which marginals do not help",
    label="thm:marginals-insufficient",
    session="theory",
    tiers={
        "smoke": MarginalsInsufficient(taus=(2, 3), num_replicas=200, num_samples=8),
        "laptop": MarginalsInsufficient(num_replicas=10_000),
        "paper": MarginalsInsufficient(),
    },
    seed=101,
    run="thm1:decide",
    tolerances={
        "exact": Tolerance(absolute=1e-05),
        "monte_carlo": Tolerance(absolute=0.02),
        "standard_error": Tolerance(absolute=0.001, relative=0.1),
    },
    minutes={"smoke": 0.2, "laptop": 1, "paper": 2},
    data="exact enumeration, and simulated labels",
    exact=True,
    caption=("Left, the reward of the paper's proof; right, the same over its largest value (@departures)."),
    place="Appendix B, Theorem 1",
    claims=(
        Claim(
            "thm1-optimum",
            "The best action earns 1, for every tau; for odd tau with the reward over its largest value.",
            "smallest optimum over tau",
            Exact("exact", select(agent="joint", reward="scaled"), "smallest"),
            equals(1, tolerance=1e-05),
        ),
        Claim(
            "thm1-odd",
            "With the reward as the proof has it the best action earns 1 for even tau, 1 - 1/tau^2 for odd.",
            "largest distance of the optimum from that",
            Exact(lambda row: abs(row["exact"] - largest_reward(row["tau"])), select(agent="joint", reward="paper")),
            equals(0, tolerance=1e-05),
            location="Appendix B, proof of Theorem 1 (ours for odd tau)",
        ),
        Claim(
            "thm1-no-better",
            "The agent with exact marginals earns no more than a random guess.",
            "largest advantage over a random guess",
            Difference("exact", _MARGINAL, _RANDOM, Each(("tau",))),
            at_most(0, tolerance=1e-05),
        ),
        Claim(
            "thm1-closed-form",
            "The agent with exact marginals earns 1 - 1/tau under the reward of the proof.",
            "largest distance from that over tau",
            Exact(lambda row: abs(row["exact"] - guess_reward(row["tau"])), select(agent="marginal", reward="paper")),
            equals(0, tolerance=1e-05),
            location="Appendix B, proof of Theorem 1",
        ),
        Claim(
            "thm1-below-one",
            "A random guess earns less than 1.",
            "largest reward of a random guess over tau up to 10",
            Exact("exact", _RANDOM),
            at_most(10 / 11, tolerance=1e-05),
        ),
        Claim(
            "thm1-monte-carlo-marginal",
            "Sampled labels do not help the agent with exact marginals beyond a random guess.",
            "Monte Carlo advantage over a random guess, mean over tau",
            Difference("monte_carlo", _MARGINAL, _RANDOM, _SAMPLED),
            at_most(0, tolerance=0.01),
        ),
        Claim(
            "thm1-monte-carlo-joint",
            "Sampled labels of the joint prediction are enough to earn more than exact marginals.",
            "Monte Carlo advantage over the agent with exact marginals, mean over tau",
            Difference("monte_carlo", select(agent="joint", reward="scaled"), _MARGINAL, _SAMPLED),
            at_least(0.05),
        ),
    ),
)

_PANELS = {"paper": "reward $1 - (s/\\tau)^2$ of the proof", "scaled": "the same over its largest value"}
_SHIFT = {"joint": 0.0, "marginal": -0.13, "random": 0.13}


def _draw_reward(ax: Axes, rows: Rows, title: str) -> None:
    """Draw the exact values as lines, and the Monte Carlo means with two standard errors as markers."""
    for agent, shift in _SHIFT.items():
        look = AGENTS[agent]
        mine = sorted((row for row in rows if row["agent"] == agent), key=lambda row: row["tau"])
        taus = [row["tau"] for row in mine]
        if agent != "random":  # Equal to the marginal agent's: one line for both.
            ax.plot(taus, [row["exact"] for row in mine], **look.line(marker="", label=None, linewidth=1.2))
        ax.errorbar(
            [tau + shift for tau in taus],
            [row["monte_carlo"] for row in mine],
            yerr=[2 * row["standard_error"] for row in mine],
            **look.line(linestyle="", markersize=4),
        )
    ax.set_title(title)
    ax.set_xlabel("number of labels $\\tau$")
    ax.set_xticks(sorted({row["tau"] for row in rows}))


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 2.9))
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (reward, title) in zip(axes, _PANELS.items(), strict=True):
        _draw_reward(ax, [row for row in rows if row["reward"] == reward], title)
    axes[0].set_ylabel("expected reward")
    axes[1].legend(loc="lower right", title="lines exact, markers Monte Carlo ± 2 s.e.", title_fontsize=7.5)
    return figure
