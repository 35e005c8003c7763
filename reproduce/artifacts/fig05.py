"""Figure 5: marginal and joint divergence of the testbed's agents, against parameters and against compute."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator

from ..artifact import Artifact
from ..claims import Claim, Difference, Exact, Ratio, RelativeChange, at_least, at_most, select
from ..configs.testbed import BALANCED, ENSEMBLE_SIZES, FEW, TUNED_CHAIN, Scaling, scaling_variants, variant_of
from ..limit import tuned_chains
from ..stats import PROBLEMS, Each, Rows, Totals, where
from ..style import AGENTS, set_log_scale
from ._testbed import TESTBED, labels_of, largest, mean_of, smallest


def _trained_by_sgd(rows: Rows) -> Rows:
    """Return the largest variants of the agents that are trained as `mlp` is."""
    agents = ("ensemble", "dropout", "bbb", "hypermodel", "ensemble+", "epinet")
    return [row for agent in agents for row in largest(agent)(rows)]


def _tuned(rows: Rows) -> Rows:
    """Return the accepted rows of the tuned `sgmcmc` on the problems that `sgmcmc` is there for, too."""
    return tuned_chains(where(rows, agent="sgmcmc"))


def _long(chains: Rows) -> Rows:
    """Return released chains if they have the released length: what shorter ones save says nothing."""
    return chains if any(f"num_steps={TUNED_CHAIN}" in row["label"] for row in chains) else []


ARTIFACT = Artifact(
    title="Marginal and joint divergence of eight agents against their cost",
    label="fig:testbed_scaling_methods",
    session="testbed",
    tiers={
        "smoke": Scaling(variants=FEW, problems=(16, 17), num_batches=20),
        "laptop": Scaling(
            variants=scaling_variants((3, 10), chain=20_000), long_chain=20_000, problems=BALANCED, num_batches=300
        ),
        "paper": Scaling(),
    },
    **TESTBED,
    minutes={"smoke": 0.4, "laptop": 6, "paper": 390},
    data="Neural Testbed",
    caption=(
        "Divergences are means over problems, costs geometric means; axes are logarithmic. An ensemble is a curve "
        "over its number of particles; `mlp` coincides with one particle. The dashed line is `sgmcmc` with its "
        "released default, the thicker one `sgmcmc` tuned by the authors' sweep on other problems "
        "(`testbed_sgmcmc`). `testbed_regret` has the same agents beside the Bayes optimum."
    ),
    place="Section 5",
    claims=(
        Claim(
            "fig05-marginals",
            "After tuning, all agents are alike in marginal prediction.",
            "largest relative difference in marginal KL from mlp, of agents trained by SGD",
            RelativeChange("marginal", _trained_by_sgd, largest("mlp"), PROBLEMS, each="label"),
            at_most(0.25),
        ),
        Claim(
            "fig05-ensemble",
            "The epinet predicts jointly much better than a large ensemble, of 100 particles at tier paper.",
            "joint KL, epinet / largest ensemble",
            Ratio("joint", largest("epinet"), largest("ensemble"), PROBLEMS),
            at_most(0.75),
        ),
        Claim(
            "fig05-size",
            "The epinet has less than twice the parameters of a particle.",
            "largest ratio of parameters, epinet / mlp",
            Ratio("parameters", largest("epinet"), largest("mlp"), Each(("problem",))),
            at_most(2),
        ),
        Claim(
            "fig05-compute",
            "The epinet costs much less than the largest ensemble.",
            "training FLOPs, largest ensemble / epinet",
            Ratio(
                "flops",
                select(label=variant_of("ensemble", num_particles=ENSEMBLE_SIZES[-1]).label),
                largest("epinet"),
                Totals(),
            ),
            at_least(5),
        ),
        Claim(
            "fig05-ensemble-plus",
            "The epinet is better than the largest ensemble with prior functions.",
            "joint KL, epinet - largest ensemble+",
            Difference("joint", largest("epinet"), largest("ensemble+"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-ensemble-plus-small",
            "The epinet is better than an ensemble with prior functions of few particles.",
            "joint KL, epinet - smallest ensemble+",
            Difference("joint", largest("epinet"), smallest("ensemble+"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-dropout",
            "The epinet predicts jointly better than dropout.",
            "joint KL, epinet - dropout",
            Difference("joint", largest("epinet"), largest("dropout"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-bbb",
            "The epinet predicts jointly better than bbb.",
            "joint KL, epinet - bbb",
            Difference("joint", largest("epinet"), largest("bbb"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-hypermodel",
            "The epinet predicts jointly better than hypermodel.",
            "joint KL, epinet - hypermodel",
            Difference("joint", largest("epinet"), largest("hypermodel"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-sgmcmc",
            "Stochastic-gradient MCMC, near the Bayes optimum, predicts jointly best.",
            "joint KL, epinet - tuned sgmcmc, on the problems of testbed_sgmcmc",
            Difference("joint", largest("epinet"), _tuned, PROBLEMS),
            at_least(0),
        ),
        Claim(
            "fig05-sgmcmc-compute",
            "Stochastic-gradient MCMC costs much more than the epinet.",
            "training FLOPs, sgmcmc with chains of the released length / epinet",
            Ratio("flops", lambda rows: _long(where(rows, agent="sgmcmc")), largest("epinet"), Totals()),
            at_least(5),
        ),
        Claim(
            "fig05-growth",
            "Ensembles predict jointly better the more particles they have.",
            "joint KL, largest - smallest ensemble",
            Difference("joint", largest("ensemble"), smallest("ensemble"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-growth-plus",
            "Ensembles with prior functions do, too.",
            "joint KL, largest - smallest ensemble+",
            Difference("joint", largest("ensemble+"), smallest("ensemble+"), PROBLEMS),
            at_most(0),
        ),
        Claim(
            "fig05-finite",
            "No agent diverges on any problem.",
            "runs with values that are not finite",
            Exact(lambda row: row["nonfinite"] != 0, which="sum"),
            at_most(0),
        ),
    ),
)

_METRICS = {"marginal": "marginal KL ($\\tau = 1$)", "joint": "joint KL ($\\tau = 10$)"}
_COSTS = {"parameters": "parameters", "flops": "training compute (counted FLOPs)"}
_ORDER = ("mlp", "dropout", "bbb", "hypermodel", "epinet", "ensemble", "ensemble+")


def _cost(rows: Rows, label: str, cost: str) -> float:
    """Return the geometric mean of a cost over problems, whose sizes span decades."""
    values = [math.log(row[cost]) for row in rows if row["label"] == label]
    return math.exp(sum(values) / len(values))


def _draw_panel(ax: Axes, rows: Rows, metric: str, cost: str) -> None:
    """Draw all agents; an ensemble is one curve over its size."""
    present = [agent for agent in _ORDER if labels_of(rows, agent)]
    for agent in present:
        points = []
        for label in labels_of(rows, agent):
            mean, error = mean_of(rows, label, metric)
            points.append((_cost(rows, label, cost), mean, error))
        points.sort()
        xs, means, errors = zip(*points, strict=True)
        bars = [0.0 if math.isnan(error) else error for error in errors]
        ax.errorbar(xs, means, yerr=bars, capsize=2, markersize=4.5, **AGENTS[agent].line())
    # What its chains cost depends on the problem.
    look = AGENTS["sgmcmc"]
    released, tuned = where(rows, agent="sgmcmc"), _tuned(rows)
    # A mean over fewer problems is not comparable with those of the other agents.
    lines = [(tuned, 1.2, look.label)] if len(tuned) == len(released) else []
    for chains, width, label in (*lines, (released, 0.6, "sgmcmc, released")):
        if chains:
            mean, error = PROBLEMS.mean(chains, metric)
            ax.axhline(mean, color=look.color, linestyle=look.linestyle, linewidth=width, label=label)
            if not math.isnan(error):
                ax.axhspan(mean - error, mean + error, color=look.color, alpha=0.08, linewidth=0)
    ax.set_xscale("log")
    first, last = ax.get_xlim()
    # Where costs span little more than a decade, a few labels within it; elsewhere the decades say enough.
    ax.xaxis.set_minor_formatter(LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(9, 9)))
    ax.xaxis.set_minor_locator(LogLocator(subs=(2, 5) if last < 50 * first else ()))
    # One particle with a prior function is ten times worse than the best agents: logarithms show the others, too.
    set_log_scale(ax)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 5.2))
    axes = figure.subplots(2, 2, sharex="row")
    for row, (cost, words) in enumerate(_COSTS.items()):
        for column, (metric, title) in enumerate(_METRICS.items()):
            ax = axes[row][column]
            _draw_panel(ax, rows, metric, cost)
            ax.set_xlabel(words)
            ax.set_ylabel(title)
    handles, names = axes[0][1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=5)
    return figure
