"""Beyond the paper: the authors' sweep of `sgmcmc`, on problems that are not judged."""

import math

from matplotlib.figure import Figure

from ..artifact import Artifact
from ..claims import Choice, Claim, Difference, at_most
from ..configs.testbed import SGMCMC_GRID, Tuning, grid_variant
from ..stats import Paired, Rows, values_of, where
from ..style import INK
from ._testbed import TESTBED

Member = tuple[float, float]
"""A learning rate and a prior variance."""


def _of(rows: Rows, member: Member) -> Rows:
    """Return the rows of a member of the sweep, whatever the length of its chains."""
    start = grid_variant(*member, num_steps=1).label.split("-num_steps=")[0]
    return [row for row in rows if row["label"].startswith(f"{start}-num_steps=")]


def _cost(rows: Rows, metric: str = "joint") -> float:
    """Return the mean of a divergence, infinite if there is none or if a chain diverged."""
    values = [float(row[metric]) for row in rows]
    mean = sum(values) / len(values) if values else math.inf
    return mean if math.isfinite(mean) else math.inf


def best(rows: Rows) -> dict[float, Member]:
    """Return the member of the sweep with the smallest mean joint divergence, for each temperature of the labels."""
    return {
        temperature: min(SGMCMC_GRID, key=lambda member: _cost(where(_of(rows, member), temperature=temperature)))
        for temperature in values_of(rows, "temperature")
    }


def _with(prior_variance: float) -> Choice:
    """Return the chains with learning rate 0.001 and this prior variance."""
    return lambda rows: _of(rows, (1e-3, prior_variance))


ARTIFACT = Artifact(
    title="The authors' sweep of sgmcmc, on problems with other seeds",
    session="testbed",
    order=3,
    tiers={"paper": Tuning()},
    # As everywhere on the testbed, with a seed of its own: what is chosen here is judged on other problems.
    **{**TESTBED, "seed": 53, "records": ""},
    minutes={"paper": 8},
    data="problems that are not judged",
    caption=(
        "One line per learning rate; a star marks the member that Figure 5 uses at this temperature of the labels. "
        "Lines end where chains diverge."
    ),
    claims=(
        Claim(
            "testbed_tuning-prior",
            "In the authors' sweep of sgmcmc, a prior variance of 1 predicts jointly better than the released 0.1.",
            "joint KL at learning rate 0.001, prior variance 1 - 0.1",
            Difference("joint", _with(1.0), _with(0.1), Paired(by=("problem",))),
            at_most(0),
        ),
    ),
)


def draw(rows: Rows) -> Figure:
    """Draw the joint divergence over the prior variance, one panel per temperature and one line per learning rate."""
    temperatures = sorted(values_of(rows, "temperature"))
    figure = Figure(figsize=(6.75, 2.5))
    axes = figure.subplots(1, len(temperatures), squeeze=False)[0]
    chosen = best(rows)
    for ax, temperature in zip(axes, temperatures, strict=True):
        own = where(rows, temperature=temperature)
        for rate, style in zip(sorted({rate for rate, _ in SGMCMC_GRID}), ("-", "--", ":"), strict=True):
            members = [member for member in SGMCMC_GRID if member[0] == rate and _of(own, member)]
            costs = [_cost(_of(own, member)) for member in members]
            shown = [value if math.isfinite(value) else math.nan for value in costs]
            ax.plot([variance for _, variance in members], shown, color=INK, linestyle=style, marker="o", markersize=3)
            ax.lines[-1].set_label(f"learning rate {rate:g}")
        ax.plot([chosen[temperature][1]], [_cost(_of(own, chosen[temperature]))], "*", color=INK, markersize=11)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("prior variance")
        ax.set_title(f"$\\rho = {temperature:g}$", fontsize=8)
    axes[0].set_ylabel("joint KL ($\\tau = 10$)")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    return figure
