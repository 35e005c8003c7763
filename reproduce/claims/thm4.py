"""Claims of Theorem 4."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals
from .select import Measure, where


def _curves(rows: Sequence[Row], metric: str) -> list[list[dict[str, Any]]]:
    """Return the rows of a metric for each data set, by dimension of the index."""
    chosen = where(rows, metric=metric)
    sizes = sorted({row["num_data"] for row in chosen})
    return [sorted(where(chosen, num_data=size), key=lambda row: row["index_dim"]) for size in sizes]


def log_slope(curves: Sequence[Sequence[Mapping[str, Any]]]) -> Measurement:
    """Return the slope that curves share on logarithmic axes, by least squares, each with its own height.

    All points weigh the same. Weights from estimated standard errors, which are small where a value came out small,
    would favor such values a little.
    """
    information, product, variance = 0.0, 0.0, 0.0
    for curve in curves:
        logs = [math.log(row["index_dim"]) for row in curve]
        center = sum(logs) / len(logs)
        for row, log in zip(curve, logs, strict=True):
            information += (log - center) ** 2
            product += (log - center) * math.log(row["value"])
            variance += ((log - center) * row["standard_error"] / row["value"]) ** 2
    return Measurement(value=product / information, standard_error=math.sqrt(variance) / information)


def _slope(metric: str) -> Measure:
    return lambda rows: log_slope(_curves(rows, metric))


def _expected(rows: Sequence[Row]) -> Measurement:
    chosen = where(rows, metric="covariance error, expected")
    expected = {(row["num_data"], row["index_dim"]): row["value"] for row in chosen}
    measured = where(rows, metric="covariance error")
    scales = [expected[row["num_data"], row["index_dim"]] for row in measured]
    pairs = list(zip(measured, scales, strict=True))
    mean = sum(row["value"] / scale for row, scale in pairs) / len(pairs)
    error = math.hypot(*(row["standard_error"] / scale for row, scale in pairs)) / len(pairs)
    return Measurement(value=mean, standard_error=error)


def _largest_step(metric: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        steps = []
        for curve in _curves(rows, metric):
            for before, after in itertools.pairwise(curve):
                ratio = after["value"] / before["value"]
                error = math.hypot(*(row["standard_error"] / row["value"] for row in (before, after)))
                steps.append(Measurement(value=ratio, standard_error=ratio * error))
        return max(steps, key=lambda step: step.value)

    return measure


def _share_of_marginals(rows: Sequence[Row]) -> Measurement:
    marginals = {row["num_data"]: row["value"] for row in where(rows, metric="joint kl of exact marginals")}
    last = [curve[-1] for curve in _curves(rows, "joint kl")]
    worst = max(last, key=lambda row: row["value"] / marginals[row["num_data"]])
    scale = marginals[worst["num_data"]]
    return Measurement(value=worst["value"] / scale, standard_error=worst["standard_error"] / scale)


def _farthest(method: str, quantity: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        return Measurement(value=max(row[quantity] for row in where(rows, metric="minimizer", method=method)))

    return measure


def _trained(metric: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        last = max(where(rows, metric=f"algorithm 1, {metric}"), key=lambda row: row["num_steps"])
        return Measurement(value=last["value"], standard_error=last["standard_error"])

    return measure


def _printed_excess(rows: Sequence[Row]) -> Measurement:
    chosen = where(rows, metric="minimizer", method="printed formula")
    return Measurement(value=min(row["excess_loss"] for row in chosen))


def _printed_error(rows: Sequence[Row]) -> Measurement:
    last = [curve[-1] for curve in _curves(rows, "covariance error, printed formula")]
    least = min(last, key=lambda row: row["value"])
    return Measurement(value=least["value"], standard_error=least["standard_error"])


THM4: tuple[Claim, ...] = (
    Claim(
        id="thm4-mean",
        statement="The parameter zeta that minimizes the expected loss is the posterior mean, for each dimension of z.",
        location="Appendix D (which writes eta for zeta)",
        quantity="largest relative distance after gradient descent",
        measure=_farthest("gradient descent", "mean_error"),
        rule=Equals(target=0.0, tolerance=1e-5),
    ),
    Claim(
        id="thm4-closed-form",
        statement="The minimizer in closed form, with the factor sigma_0 on P_0, is what gradient descent finds.",
        location="Appendix D, with our correction",
        quantity="largest relative distance of the parameters",
        measure=_farthest("gradient descent", "value"),
        rule=Equals(target=0.0, tolerance=1e-5),
    ),
    Claim(
        id="thm4-algorithm-1",
        statement="Algorithm 1, with random indices and batches, comes to the minimizer in closed form.",
        location="Section 4.3, Algorithm 1",
        quantity="relative distance of the parameters after the longest training",
        measure=_trained("distance to closed form"),
        rule=AtMost(bound=0.05),
    ),
    Claim(
        id="thm4-algorithm-1-joint",
        statement="The joint predictions after Algorithm 1 are as good as those of the minimizer.",
        location="Section 4.3, Algorithm 1",
        quantity="divergence from the posterior's, minus that of the minimizer, in nats",
        measure=_trained("joint kl above closed form"),
        rule=Equals(target=0.0, tolerance=0.05),
    ),
    Claim(
        id="thm4-slope",
        statement="The epinet's covariance converges to the posterior's with the root of the dimension of z.",
        location="Theorem 4 (the rate is ours)",
        quantity="slope of its relative error on logarithmic axes",
        measure=_slope("covariance error"),
        rule=Equals(target=-0.5, tolerance=0.02),
    ),
    Claim(
        id="thm4-expected",
        statement="The error of the covariance has the expected size at each dimension of z, large or small.",
        location="Ours, sharpens Theorem 4",
        quantity="measured over expected root mean square error",
        measure=_expected,
        rule=Equals(target=1.0, tolerance=0.02),
    ),
    Claim(
        id="thm4-wasserstein",
        statement="The distance of the epinet's distribution from the posterior falls at each larger dimension.",
        location="Theorem 4",
        quantity="largest ratio of 2-Wasserstein distances from one dimension to the next",
        measure=_largest_step("wasserstein"),
        rule=AtMost(bound=0.9),
    ),
    Claim(
        id="thm4-joint",
        statement="The divergence of joint predictions from the posterior's falls at each larger dimension.",
        location="Theorem 4 and Section 4.3",
        quantity="largest ratio from one dimension to the next",
        measure=_largest_step("joint kl"),
        rule=AtMost(bound=0.75),
    ),
    Claim(
        id="thm4-marginals",
        statement="At the largest dimension joint predictions lose little of what exact marginals alone would lose.",
        location="Section 4.3",
        quantity="divergence of joint predictions over that of the exact marginals",
        measure=_share_of_marginals,
        rule=AtMost(bound=0.1),
    ),
    Claim(
        id="thm4-printed",
        statement="The formula that the paper prints for eta, without the factor sigma_0, is not the minimizer.",
        location="Appendix D, a correction",
        quantity="least excess of the expected loss, relative to the minimum",
        measure=_printed_excess,
        rule=AtLeast(bound=0.1),
    ),
    Claim(
        id="thm4-printed-covariance",
        statement="With the printed formula the covariance does not converge to the posterior's.",
        location="Appendix D, a correction",
        quantity="least relative error of the covariance at the largest dimension",
        measure=_printed_error,
        rule=AtLeast(bound=0.5),
    ),
)
