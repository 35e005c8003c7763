"""Beyond the paper: how long the chains of `sgmcmc` must be."""

import math

from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, RelativeChange, equals, select
from ..configs.testbed import Chains
from ..stats import LARGEST, Paired, Rows, values_of, where
from ..style import AGENTS


def _second_longest(rows: Rows) -> Rows:
    """Return the chains of the second largest length."""
    return where(rows, num_steps=sorted(values_of(rows, "num_steps"))[-2])


ARTIFACT = Artifact(
    title="Chains of sgmcmc: how long they must be",
    session="testbed",
    order=3,
    tiers={
        "smoke": Chains(problems=(16, 17), num_steps=(500, 1000), num_batches=20),
        "laptop": Chains(problems=(71, 91), num_steps=(2000, 20_000)),
        "paper": Chains(),
    },
    seed=52,
    run="testbed_chains:run",
    groups="groups",
    tolerances={
        "marginal": Tolerance(absolute=0.05, relative=0.2),
        "joint": Tolerance(absolute=0.3, relative=0.2),
        "median_r_hat": Tolerance(absolute=0.1),
        "largest_r_hat": Tolerance(absolute=1),
        "seconds": Tolerance(absolute=math.inf),
    },
    minutes={"smoke": 0.2, "laptop": 0.5, "paper": 45},
    data="two chains for each problem",
    caption="Right, each line is a problem; below the dotted line, chains are usually considered to agree.",
    claims=(
        Claim(
            "testbed_chains-length",
            "Chains of sgmcmc shorter than the longest make no difference.",
            "relative difference in joint KL, second longest - longest chains",
            RelativeChange(
                "joint", _second_longest, select(num_steps=LARGEST), Paired(by=("problem",), within=("chain",))
            ),
            equals(0, tolerance=0.05),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the joint divergence of both chains over their length, and the median R-hat, one line per problem."""
    figure = Figure(figsize=(6.75, 2.9))
    divergence, agreement = figure.subplots(1, 2)
    lengths = sorted({row["num_steps"] for row in rows})
    color = AGENTS["sgmcmc"].color
    for chain, marker in enumerate("ox"):
        means, bars = [], []
        for length in lengths:
            values = [row["joint"] for row in rows if row["num_steps"] == length and row["chain"] == chain]
            mean = sum(values) / len(values)
            spread = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
            means.append(mean)
            bars.append(math.sqrt(spread / len(values)))
        look = {"color": color, "marker": marker, "capsize": 2, "linewidth": 1.0, "markersize": 4}
        divergence.errorbar(lengths, means, yerr=bars, label=f"chain {chain + 1}", **look)
    for problem in sorted({row["problem"] for row in rows}):
        own = {row["num_steps"]: row["median_r_hat"] for row in rows if row["problem"] == problem}
        agreement.plot(lengths, [own[length] for length in lengths], color=color, alpha=0.35, linewidth=0.8)
    agreement.axhline(1.1, linestyle=":", linewidth=0.8, color="black")
    for ax, words in ((divergence, "joint KL, mean over problems"), (agreement, "median $\\hat R$, per problem")):
        ax.set_xscale("log")
        ax.set_xticks(lengths, [f"{length:,}" for length in lengths])
        ax.minorticks_off()
        ax.set_xlabel("steps of a chain")
        ax.set_ylabel(words)
    divergence.set_ylim(bottom=0)
    divergence.legend()
    return figure
