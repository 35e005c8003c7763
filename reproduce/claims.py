"""Claims as data: a sentence of the paper, what measures it, and the rule that decides; a verdict is never typed in.

A rule looks at the interval of `errors` standard errors around the measured value: the claim holds if all of the
interval agrees with the rule, does not hold if none of it does, and is undecided otherwise. A value without a standard
error is exact; `tolerance` allows for rounding, or says how close two quantities must be to count as equal. A bound may
have a `margin`: where the interval reaches across the bound, but lies within the margin, the two are equal for all
practical purposes, which is a verdict of its own.
"""

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .stats import UNKNOWN, Design, Measurement, Metric, Rows, holm, log_slope, value_in, values_of, where

# Which rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Select:
    """Rows chosen by their values; arguments are those of `where`."""

    wanted: Mapping[str, Any]

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows."""
        return where(rows, **self.wanted)


def select(**wanted: Any) -> Select:
    """Return the choice of rows with these values."""
    return Select(wanted)


Choice = Callable[[Rows], Rows]
"""A `Select`, or any function that chooses rows."""

ALL = select()
"""All rows."""

# What is measured -------------------------------------------------------------------------------------------------

Measure = Callable[[Rows], Measurement]
"""One of the measures below, or any function of the rows."""


def _farthest(found: list[Measurement]) -> Measurement:
    """Return the size of the number that is farthest from zero; unknown ones decide nothing."""
    known = [one for one in found if not math.isnan(one.value)]
    if not known:
        return UNKNOWN
    worst = max(known, key=lambda one: abs(one.value))
    return Measurement(abs(worst.value), worst.standard_error)


def _known(found: Measurement) -> Measurement:
    """Return a measurement without the error of what is unknown."""
    return UNKNOWN if math.isnan(found.value) else found


@dataclass(frozen=True)
class Difference:
    """The mean of a metric over some rows, minus that over others; without others, the mean itself.

    Attributes:
        metric: a column, or a formula of a row.
        first: the rows.
        second: the others.
        over: what means are over.
        other: the metric of the others, if it is another one.
    """

    metric: Metric
    first: Choice
    second: Choice | None
    over: Design
    other: Metric = ""

    def __call__(self, rows: Rows) -> Measurement:
        """Measure; nothing is known of rows that are compared with themselves."""
        first = self.first(rows)
        if self.second is None:
            return _known(self.over.mean(first, self.metric))
        second = self.second(rows)
        if not self.other and first == second:
            return UNKNOWN
        return _known(self.over.difference(first, second, self.metric, self.other or self.metric))


@dataclass(frozen=True)
class Ratio:
    """The mean of a metric over some rows, divided by that over others; attributes as of `Difference`."""

    metric: Metric
    first: Choice
    second: Choice
    over: Design

    def __call__(self, rows: Rows) -> Measurement:
        """Measure."""
        first, second = self.first(rows), self.second(rows)
        return _known(self.over.ratio(first, second, self.metric)) if first and second else UNKNOWN


@dataclass(frozen=True)
class RelativeChange:
    """By which share the mean of a metric over some rows differs from that over others; attributes as of `Difference`.

    Attributes:
        each: a column; each of its values is compared on its own, and the size of the largest change is measured.
    """

    metric: Metric
    first: Choice
    second: Choice
    over: Design
    each: str = ""

    def _one(self, first: Rows, second: Rows) -> Measurement:
        """Return the change of some rows."""
        if not first or not second:
            return UNKNOWN
        found = self.over.ratio(first, second, self.metric)
        return Measurement(found.value - 1, found.standard_error)

    def __call__(self, rows: Rows) -> Measurement:
        """Measure."""
        first, second = self.first(rows), self.second(rows)
        if not self.each:
            return _known(self._one(first, second))
        values = values_of(first, self.each)
        return _farthest([self._one(where(first, **{self.each: value}), second) for value in values])


@dataclass(frozen=True)
class Slope:
    """The slope of the column `value` on logarithmic axes, shared by several curves.

    Attributes:
        rows: the rows.
        over: column of the axis.
        curves: column that distinguishes curves.
    """

    rows: Choice
    over: str
    curves: str

    def __call__(self, rows: Rows) -> Measurement:
        """Measure."""
        chosen = self.rows(rows)
        return log_slope([where(chosen, **{self.curves: value}) for value in values_of(chosen, self.curves)], self.over)


@dataclass(frozen=True)
class Exact:
    """A number that rows hold: the largest, smallest or farthest from zero of a metric, its range, or its sum.

    Attributes:
        metric: a column, or a formula of a row.
        rows: the rows.
        which: "largest", "smallest", "farthest", "range" or "sum".
        error: column or formula of the standard error, if it is not exact after all.
    """

    metric: Metric
    rows: Choice = ALL
    which: str = "largest"
    error: Metric = ""

    def __call__(self, rows: Rows) -> Measurement:
        """Measure."""
        found = [
            Measurement(value_in(row, self.metric), value_in(row, self.error) if self.error else 0.0)
            for row in self.rows(rows)
        ]
        if not found:
            return UNKNOWN
        values = [one.value for one in found]
        if self.which == "range":
            return Measurement(max(values) - min(values))
        if self.which == "sum":
            return Measurement(sum(values))
        keys: dict[str, Callable[[float], float]] = {"largest": lambda v: v, "smallest": lambda v: -v, "farthest": abs}
        return max(found, key=lambda one: keys[self.which](one.value))


@dataclass(frozen=True)
class PValue:
    """The p-values of the column `p` together, adjusted for their number by Holm's method.

    Attributes:
        rows: the rows.
        which: "smallest", of which a claim that nothing differs is judged; "largest", that everything does.
        each: a column; the smallest p-value for each of its values, and the largest of these.
    """

    rows: Choice
    which: str = "smallest"
    each: str = ""

    def __call__(self, rows: Rows) -> Measurement:
        """Measure."""
        chosen = self.rows(rows)
        if not chosen:
            return UNKNOWN
        groups = [where(chosen, **{self.each: value}) for value in values_of(chosen, self.each)]
        found = [holm([row["p"] for row in group]) for group in (groups if self.each else [chosen])]
        return Measurement(max(p_values[0 if self.which == "smallest" else -1] for p_values in found))


# What decides -----------------------------------------------------------------------------------------------------


class Verdict(enum.Enum):
    """The verdict of a rule on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    EQUAL = "equal within the margin"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The value lies in an interval. Make one by `at_least`, `at_most` or `equals`.

    Attributes:
        least: the lower end.
        most: the upper end.
        words: the interval in words, without the fine print.
        errors: how many standard errors around the value must lie in it.
        tolerance: by how much both ends are moved out.
        margin: how far from a single bound a value may lie without any practical difference; 0 if that is not declared.
    """

    least: float
    most: float
    words: str
    errors: float = 2.0
    tolerance: float = 0.0
    margin: float = 0.0

    def __call__(self, value: float, standard_error: float) -> Verdict:
        """Return the verdict on a measured value."""
        reach = self.errors * standard_error
        low, high = value - reach, value + reach
        least, most = self.least - self.tolerance, self.most + self.tolerance
        if math.isnan(low) or math.isnan(high):
            return Verdict.UNDECIDED
        if least <= low and high <= most:
            return Verdict.HOLDS
        if high < least or low > most:
            return Verdict.FAILS
        bound = self.most if math.isinf(self.least) else self.least
        within = max(abs(low - bound), abs(high - bound)) <= self.margin
        return Verdict.EQUAL if within else Verdict.UNDECIDED

    def __str__(self) -> str:
        """Return the rule in words."""
        tolerance = f", tolerance {self.tolerance:g}" if self.tolerance else ""
        margin = f", equal within {self.margin:g}" if self.margin else ""
        return f"{self.words} ({self.errors:g} s.e.{tolerance}{margin})"


def at_least(bound: float, *, tolerance: float = 0.0, margin: float = 0.0) -> Rule:
    """The value is at least a bound, or known to be equal to it within a margin."""
    return Rule(least=bound, most=math.inf, words=f"at least {bound:g}", tolerance=tolerance, margin=margin)


def at_most(bound: float, *, tolerance: float = 0.0, margin: float = 0.0) -> Rule:
    """The value is at most a bound, or known to be equal to it within a margin."""
    return Rule(least=-math.inf, most=bound, words=f"at most {bound:g}", tolerance=tolerance, margin=margin)


def equals(target: float, *, tolerance: float) -> Rule:
    """The value is a target up to the tolerance: an equivalence test, not the mere absence of a difference."""
    return Rule(least=target, most=target, words=f"equals {target:g}", tolerance=tolerance)


# Claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, or one that its theory needs, as a check.

    Attributes:
        id: the artifact's id and a name.
        statement: the sentence, in our words.
        quantity: what is measured, in words.
        measure: computes it from the rows of the CSV.
        rule: decides.
        location: where the paper says it; empty for the place of the artifact.
    """

    id: str
    statement: str
    quantity: str
    measure: Measure
    rule: Rule
    location: str = ""


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """A claim with its measurement and verdict."""

    claim: Claim
    measurement: Measurement
    verdict: Verdict


def judge(claim: Claim, rows: Rows) -> LedgerLine:
    """Measure a claim and apply its rule."""
    measurement = claim.measure(rows)
    return LedgerLine(claim=claim, measurement=measurement, verdict=claim.rule(*measurement))
