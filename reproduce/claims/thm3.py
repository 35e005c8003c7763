"""Claims of Theorem 3.

Two-sample tests are judged together: all p-values of a claim are adjusted by Holm's method, so that a claim about many
BNNs at the level of one percent is wrongly rejected in one percent of the cases.
"""

import math
from collections.abc import Sequence

from ..record import Row
from .ledger import Claim, Measurement
from .rules import AtLeast, AtMost, Equals
from .select import Measure, where

LEVEL = 0.01
"""The declared level, over all tests of a claim."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number, smallest first."""
    adjusted, largest = [], 0.0
    for rank, value in enumerate(sorted(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * value))
        adjusted.append(largest)
    return adjusted


def uniformity(p_values: Sequence[float]) -> float:
    """Return the p-value of the Kolmogorov-Smirnov test that p-values are uniform, by Stephens's approximation."""
    count = len(p_values)
    ordered = sorted(p_values)
    distance = max(max((i + 1) / count - value, value - i / count) for i, value in enumerate(ordered))
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * distance
    if scaled < 0.2:  # The series is one to many digits there, and converges too slowly to show it.
        return 1.0
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101)))


def _largest_difference(quantity: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        return Measurement(value=max(row["difference"] for row in where(rows, kind="exact", quantity=quantity)))

    return measure


def _agreement(rows: Sequence[Row]) -> Measurement:
    return Measurement(value=holm([row["p"] for row in where(rows, kind="combined", enn="right")])[0])


def _uniform(rows: Sequence[Row]) -> Measurement:
    chosen = where(rows, kind="replicate", enn="right", test="energy")
    return Measurement(value=uniformity([row["p"] for row in chosen]))


def _tables(rows: Sequence[Row]) -> Measurement:
    scores = [
        abs(row["enn_log_prob"] - row["bnn_log_prob"]) / math.hypot(row["enn_error"], row["bnn_error"])
        for row in where(rows, kind="cell")
        if row["num_samples"]  # The others are exact, and judged as such.
    ]
    return Measurement(value=holm([math.erfc(score / math.sqrt(2)) for score in scores])[0])


def _rejection(enn: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        return Measurement(value=holm([r["p"] for r in where(rows, kind="combined", enn=enn, test="energy")])[-1])

    return measure


def _bnns_at_zero(rows: Sequence[Row]) -> Measurement:
    chosen = where(rows, kind="largest at zero")
    return Measurement(value=max(row["sampled"] for row in chosen if row["model"] != "ENN"))


def _ratio(kind: str) -> Measure:
    def measure(rows: Sequence[Row]) -> Measurement:
        (row,) = where(rows, kind=kind, model="ENN")
        return Measurement(value=row["sampled"] / row["exact"], standard_error=row["standard_error"] / row["exact"])

    return measure


def _bnn_residual(rows: Sequence[Row]) -> Measurement:
    chosen = where(rows, kind="residual of linear fits")
    return Measurement(value=max(row["sampled"] for row in chosen if row["model"] != "ENN"))


def _without_shift(rows: Sequence[Row]) -> Measurement:
    return Measurement(value=where(rows, kind="difference from the base without shift")[0]["sampled"])


_LOCATION = "Section 3.2, Theorem 3"

THM3: tuple[Claim, ...] = (
    Claim(
        id="thm3-exact-outputs",
        statement="The ENN of a finite BNN (an ensemble, posterior samples) says what the BNN says, index by particle.",
        location=_LOCATION,
        quantity="largest difference of an output",
        measure=_largest_difference("outputs"),
        rule=Equals(target=0.0, tolerance=1e-5),
    ),
    Claim(
        id="thm3-exact-tables",
        statement="The joint predictive distribution of a finite BNN and that of its ENN are equal.",
        location=_LOCATION,
        quantity="largest difference of a joint probability",
        measure=_largest_difference("joint probabilities"),
        rule=Equals(target=0.0, tolerance=1e-6),
    ),
    Claim(
        id="thm3-samples",
        statement="For every kind of BNN, joint outputs sampled directly and from its ENN have one distribution.",
        location=f"{_LOCATION}, Eq. (3)",
        quantity="smallest p-value of two-sample tests, adjusted for their number",
        measure=_agreement,
        rule=AtLeast(bound=LEVEL),
    ),
    Claim(
        id="thm3-uniform",
        statement="Repeated with other samples the tests give uniform p-values, as they must for equal distributions.",
        location=f"{_LOCATION}, Eq. (3)",
        quantity="p-value of uniformity",
        measure=_uniform,
        rule=AtLeast(bound=LEVEL),
    ),
    Claim(
        id="thm3-log-probs",
        statement="For every kind of BNN, the joint log-probabilities of all combinations of labels agree.",
        location=f"{_LOCATION}, Eq. (2)",
        quantity="smallest p-value of a difference over its standard error, adjusted for their number",
        measure=_tables,
        rule=AtLeast(bound=LEVEL),
    ),
    Claim(
        id="thm3-power-joint",
        statement="The tests can fail: with an index redrawn for each input, which keeps all marginals, they reject.",
        location="Ours, a control",
        quantity="largest p-value, adjusted for their number",
        measure=_rejection("index redrawn"),
        rule=AtMost(bound=LEVEL),
    ),
    Claim(
        id="thm3-power-width",
        statement="The tests can fail: with a spread that is 30 percent too large they reject.",
        location="Ours, a control",
        quantity="largest p-value, adjusted for their number",
        measure=_rejection("too wide"),
        rule=AtMost(bound=LEVEL),
    ),
    Claim(
        id="thm3-defined",
        statement="The ENN of the counter-example is defined with respect to the linear base: without shift it is it.",
        location="Appendix C",
        quantity="largest difference of an output from the base network",
        measure=_without_shift,
        rule=Equals(target=0.0, tolerance=1e-6),
    ),
    Claim(
        id="thm3-bnns-at-zero",
        statement="Every BNN on the linear base says zero at x = 0.",
        location="Appendix C",
        quantity="largest output there of four kinds of BNN",
        measure=_bnns_at_zero,
        rule=Equals(target=0.0, tolerance=0.0),
    ),
    Claim(
        id="thm3-enn-at-zero",
        statement="The ENN of the counter-example has the variance of its shift at x = 0.",
        location="Appendix C",
        quantity="sampled variance over the square of the shift",
        measure=_ratio("variance at zero"),
        rule=Equals(target=1.0, tolerance=0.05),
    ),
    Claim(
        id="thm3-residual",
        statement="Even the nearest linear functions miss the functions of the ENN, by what the theory says.",
        location="Appendix C (the number is ours)",
        quantity="sampled mean squared residual over the expected one",
        measure=_ratio("residual of linear fits"),
        rule=Equals(target=1.0, tolerance=0.05),
    ),
    Claim(
        id="thm3-bnn-residual",
        statement="Linear functions do not miss the functions of a BNN on the linear base.",
        location="Appendix C",
        quantity="largest mean squared residual",
        measure=_bnn_residual,
        rule=Equals(target=0.0, tolerance=1e-9),
    ),
)
