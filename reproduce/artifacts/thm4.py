"""Theorem 4: the distance to the posterior by dimension of the index, and what training finds."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..artifact import Artifact, Tolerance
from ..claims import Claim, Exact, Measure, Ratio, Slope, at_least, at_most, equals, select
from ..configs import unit_of
from ..stats import LARGEST, Each, Measurement, Rows, log_slope, values_of, where
from ..style import AGENTS, INK, MUTED


@dataclass(frozen=True, kw_only=True)
class EpinetTraining:
    """Theorem 4 by training: what gradient descent and Algorithm 1 find.

    Attributes:
        index_dims: dimensions of the index for gradient descent on the expected loss.
        descent_steps: its steps.
        index_dim: dimension of the index for Algorithm 1.
        num_steps: its steps, one training for each entry.
        batch_size: its examples per step.
        num_index_samples: its index samples per step.
        learning_rate: its learning rate, which falls to zero.
        num_seeds: how many epinets are trained at each dimension.
    """

    index_dims: tuple[int, ...] = (4, 16, 64)
    descent_steps: int = 1000
    index_dim: int = 8
    num_steps: tuple[int, ...] = (300, 3000, 30_000)
    batch_size: int = 10
    num_index_samples: int = 8
    learning_rate: float = 0.03
    num_seeds: int = 20


@dataclass(frozen=True, kw_only=True)
class EpinetOnData:
    """Theorem 4 on one data set: the distance to the posterior at each dimension of the index.

    Attributes:
        in_dim: size of the input.
        num_data: number of examples.
        noise_scale: standard deviation of the noise, in the data and in the loss.
        prior_scale: standard deviation of the prior, in the data and in the epinet.
        index_dims: dimensions of the index for the closed form.
        num_seeds: how many epinets at each dimension, each with perturbations and a prior of its own.
        tau: number of labels of a joint prediction.
        num_batches: over how many batches of test inputs joint predictions are averaged.
        training: whether epinets are trained on the data too, and how.
    """

    in_dim: int
    num_data: int
    noise_scale: float
    prior_scale: float
    index_dims: tuple[int, ...]
    num_seeds: int
    tau: int
    num_batches: int
    training: EpinetTraining | None


@dataclass(frozen=True, kw_only=True)
class LinearGaussianEpinet:
    """Theorem 4: the linear-Gaussian epinet against the exact posterior; one of the data sets is trained on."""

    in_dim: int = 10
    num_data: tuple[int, ...] = (5, 20, 80)
    trained_num_data: int = 20
    noise_scale: float = 1.0
    prior_scale: float = 2.0
    index_dims: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    num_seeds: int = 2000
    tau: int = 10
    num_batches: int = 16
    training: EpinetTraining = field(default_factory=EpinetTraining)

    def units(self) -> Mapping[str, EpinetOnData]:
        """Return one run per number of data."""
        return {
            f"data{num_data:03d}": unit_of(
                EpinetOnData,
                self,
                num_data=num_data,
                training=self.training if num_data == self.trained_num_data else None,
            )
            for num_data in self.num_data
        }


_FOUND = select(metric="minimizer", method="gradient descent")


def _trained(metric: str) -> Exact:
    """Return a number of Algorithm 1 after the longest training."""
    return Exact("value", select(metric=f"algorithm 1, {metric}", num_steps=LARGEST), error="standard_error")


def _largest_step(metric: str) -> Measure:
    """Return the largest ratio of a metric from one dimension of the index to the next."""

    def measure(rows: Rows) -> Measurement:
        chosen = where(rows, metric=metric)
        steps = []
        for num_data in values_of(chosen, "num_data"):
            curve = sorted(where(chosen, num_data=num_data), key=lambda row: row["index_dim"])
            for before, after in itertools.pairwise(curve):
                ratio = after["value"] / before["value"]
                error = math.hypot(*(row["standard_error"] / row["value"] for row in (before, after)))
                steps.append(Measurement(ratio, ratio * error))
        return max(steps, key=lambda step: step.value)

    return measure


ARTIFACT = Artifact(
    title="The linear-Gaussian epinet and the exact posterior",
    label="thm:blr_epinet",
    session="theory",
    tiers={
        "smoke": LinearGaussianEpinet(
            num_data=(20,),
            index_dims=(4, 16, 64, 256),
            num_seeds=400,
            num_batches=4,
            training=EpinetTraining(index_dims=(8,), descent_steps=300, num_steps=(2000,), num_seeds=4),
        ),
        "laptop": LinearGaussianEpinet(num_seeds=200, training=EpinetTraining(num_steps=(300, 3000), num_seeds=8)),
        "paper": LinearGaussianEpinet(),
    },
    seed=104,
    run="thm4:run",
    tolerances={
        "value": Tolerance(absolute=1e-05, relative=0.05),
        "standard_error": Tolerance(absolute=1e-06, relative=0.2),
        "mean_error": Tolerance(absolute=1e-05, relative=0.0001),
        "covariance_error": Tolerance(relative=0.001),
        "excess_loss": Tolerance(absolute=1e-05, relative=0.001),
        "closed_form": Tolerance(absolute=0.0001),
        "printed_formula": Tolerance(absolute=0.0001),
        "algorithm_1": Tolerance(absolute=0.02),
    },
    minutes={"smoke": 0.2, "laptop": 0.8, "paper": 1.5},
    data="simulated data of a linear-Gaussian model",
    exact=True,
    caption=(
        "(a) The error and its slope for one data set. (b) The divergence of joint predictions over that of exact "
        "marginals. (c) Each parameter after training against both formulas."
    ),
    place="Section 4.3, Algorithm 1",
    claims=(
        Claim(
            "thm4-mean",
            "The parameter zeta that minimizes the expected loss is the posterior mean, for each dimension of z.",
            "largest relative distance after gradient descent",
            Exact("mean_error", _FOUND),
            equals(0, tolerance=1e-05),
            location="Appendix D (which writes eta for zeta)",
        ),
        Claim(
            "thm4-closed-form",
            "The minimizer in closed form, with the factor sigma_0 on P_0, is what gradient descent finds.",
            "largest relative distance of the parameters",
            Exact("value", _FOUND),
            equals(0, tolerance=1e-05),
            location="Appendix D, with our correction",
        ),
        Claim(
            "thm4-algorithm-1",
            "Algorithm 1, with random indices and batches, comes to the minimizer in closed form.",
            "relative distance of the parameters after the longest training",
            _trained("distance to closed form"),
            at_most(0.05),
        ),
        Claim(
            "thm4-algorithm-1-joint",
            "The joint predictions after Algorithm 1 are as good as those of the minimizer.",
            "divergence from the posterior's, minus that of the minimizer, in nats",
            _trained("joint kl above closed form"),
            equals(0, tolerance=0.05),
        ),
        Claim(
            "thm4-slope",
            "The epinet's covariance converges to the posterior's with the root of the dimension of z.",
            "slope of its relative error on logarithmic axes",
            Slope(select(metric="covariance error"), over="index_dim", curves="num_data"),
            equals(-0.5, tolerance=0.02),
            location="Theorem 4 (the rate is ours)",
        ),
        Claim(
            "thm4-expected",
            "The error of the covariance has the expected size at each dimension of z, large or small.",
            "measured over expected root mean square error",
            Ratio(
                "value",
                select(metric="covariance error"),
                select(metric="covariance error, expected"),
                Each(("num_data", "index_dim"), error="standard_error", averaged=True),
            ),
            equals(1, tolerance=0.02),
            location="Ours, sharpens Theorem 4",
        ),
        Claim(
            "thm4-wasserstein",
            "The distance of the epinet's distribution from the posterior falls at each larger dimension.",
            "largest ratio of 2-Wasserstein distances from one dimension to the next",
            _largest_step("wasserstein"),
            at_most(0.9),
            location="Theorem 4",
        ),
        Claim(
            "thm4-joint",
            "The divergence of joint predictions from the posterior's falls at each larger dimension.",
            "largest ratio from one dimension to the next",
            _largest_step("joint kl"),
            at_most(0.75),
            location="Theorem 4 and Section 4.3",
        ),
        Claim(
            "thm4-marginals",
            "At the largest dimension joint predictions lose little of what exact marginals alone would lose.",
            "divergence of joint predictions over that of the exact marginals",
            Ratio(
                "value",
                select(metric="joint kl", index_dim=LARGEST),
                select(metric="joint kl of exact marginals"),
                Each(("num_data",), error="standard_error"),
            ),
            at_most(0.1),
            location="Section 4.3",
        ),
        Claim(
            "thm4-printed",
            "The formula that the paper prints for eta, without the factor sigma_0, is not the minimizer.",
            "least excess of the expected loss, relative to the minimum",
            Exact("excess_loss", select(metric="minimizer", method="printed formula"), "smallest"),
            at_least(0.1),
            location="Appendix D, a correction",
        ),
        Claim(
            "thm4-printed-covariance",
            "With the printed formula the covariance does not converge to the posterior's.",
            "least relative error of the covariance at the largest dimension",
            Exact(
                "value",
                select(metric="covariance error, printed formula", index_dim=LARGEST),
                "smallest",
                error="standard_error",
            ),
            at_least(0.5),
            location="Appendix D, a correction",
        ),
    ),
)

_BLUE, _RED = AGENTS["epinet"].color, AGENTS["ensemble"].color
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": _BLUE, "marker": "o", "linestyle": "-"},
    {"color": INK, "marker": "s", "linestyle": "--", "markersize": 4},
    {"color": MUTED, "marker": "^", "linestyle": ":"},
)


def _curve(rows: Rows, metric: str, num_data: int) -> list[Mapping[str, Any]]:
    """Return the rows of one metric and data set, by dimension."""
    chosen = [row for row in rows if row["metric"] == metric and row["num_data"] == num_data]
    return sorted(chosen, key=lambda row: row["index_dim"])


def _column(rows: Rows, name: str, factor: float = 1.0) -> list[float]:
    """Return one column."""
    return [factor * row[name] for row in rows]


def _draw_covariance(ax: Axes, rows: Rows, num_data: int) -> None:
    """Draw the relative error of the covariance: measured, expected, trained, and as printed."""
    printed = _curve(rows, "covariance error, printed formula", num_data)
    expected = _curve(rows, "covariance error, expected", num_data)
    measured = _curve(rows, "covariance error", num_data)
    trained = [row for row in rows if row["metric"] == "minimizer" and row["method"] == "gradient descent"]
    dims = _column(measured, "index_dim")
    slope = log_slope([measured], "index_dim")
    ax.plot(dims, _column(printed, "value"), color=MUTED, marker="x", linestyle=":", label="$\\eta$ as printed")
    ax.plot(dims, _column(expected, "value"), color=INK, linewidth=1.0, label="expected, slope $-1/2$")
    ax.errorbar(
        dims,
        _column(measured, "value"),
        yerr=_column(measured, "standard_error", 2.0),
        color=_BLUE,
        marker="o",
        linestyle="",
        label=f"closed form, slope\n${slope.value:.3f} \\pm {slope.standard_error:.3f}$",
    )
    ax.plot(
        _column(trained, "index_dim"),
        _column(trained, "covariance_error"),
        color=_RED,
        marker="s",
        markersize=8.5,
        markerfacecolor="none",
        linestyle="",
        label="gradient descent",
    )
    ax.set(xscale="log", yscale="log")
    ax.set_title("a  error of the covariance")
    ax.set_xlabel("dimension $D_Z$ of the index")
    ax.set_ylabel("relative error", labelpad=1)
    ax.legend(loc="upper right", bbox_to_anchor=(1.03, 0.82), handlelength=1.6, labelspacing=0.25, fontsize=7)


def _draw_predictions(ax: Axes, rows: Rows, sizes: Sequence[int]) -> None:
    """Draw the divergence of joint predictions for each data set, over that of exact marginals."""
    for size, look in zip(sizes, _LOOKS, strict=False):
        curve = _curve(rows, "joint kl", size)
        (marginals,) = [r for r in rows if r["metric"] == "joint kl of exact marginals" and r["num_data"] == size]
        ax.errorbar(
            _column(curve, "index_dim"),
            _column(curve, "value", 1 / marginals["value"]),
            yerr=_column(curve, "standard_error", 2 / marginals["value"]),
            linewidth=1.2,
            label=f"{size} data",
            **look,
        )
    ax.axhline(1.0, color=_RED, linewidth=1.2, linestyle=(0, (5, 1)))
    ax.annotate(
        "exact marginals, Eq. (1)",
        (1.0, 1.0),
        (-2, 3),
        ("axes fraction", "data"),
        "offset points",
        fontsize=7,
        ha="right",
    )
    ax.set(xscale="log", yscale="log")
    ax.set_title("b  joint predictions")
    ax.set_xlabel("dimension $D_Z$ of the index")
    ax.set_ylabel(f"relative divergence, $\\tau = {rows[0]['tau']}$", labelpad=1)
    ax.legend(loc="lower left", handlelength=2.2, borderaxespad=0.2, labelspacing=0.25, fontsize=7)


def _draw_parameters(ax: Axes, rows: Rows) -> None:
    """Draw each parameter after Algorithm 1 against both formulas."""
    entries = [row for row in rows if row["metric"] == "parameter"]
    last = max((row for row in rows if row["metric"].startswith("algorithm 1")), key=lambda row: row["num_steps"])
    trained = _column(entries, "algorithm_1")
    ends = [min(trained), max(trained)]
    ax.plot(ends, ends, color=INK, linewidth=0.8, zorder=1)
    ax.plot(trained, _column(entries, "printed_formula"), color=MUTED, marker="x", linestyle="", label="as printed")
    ax.plot(
        trained,
        _column(entries, "closed_form"),
        color=_BLUE,
        marker="o",
        markersize=4,
        markerfacecolor="none",
        linestyle="",
        label="closed form",
    )
    ax.set_title("c  parameters $\\zeta, \\eta$")
    ax.set_xlabel(f"Algorithm 1, {last['num_steps']} steps")
    ax.set_ylabel("by formula", labelpad=1)
    ax.legend(loc="upper left", handlelength=1.0, borderaxespad=0.2, labelspacing=0.25, fontsize=7)


def draw(rows: Rows) -> Figure:
    """Draw the figure."""
    figure = Figure(figsize=(6.75, 2.7))
    left, middle, right = figure.subplots(1, 3)
    sizes = sorted({row["num_data"] for row in rows if row["metric"] == "joint kl"})
    (trained_size,) = {row["num_data"] for row in rows if row["metric"] == "parameter"}
    _draw_covariance(left, rows, trained_size)
    _draw_predictions(middle, rows, sizes)
    _draw_parameters(right, rows)
    return figure
