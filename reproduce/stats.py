"""Statistics of rows: which rows are meant, means and differences over what is random, slopes, p-values."""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Rows = Sequence[Mapping[str, Any]]
Metric = str | Callable[[Mapping[str, Any]], float]
"""A column, or a formula of a row."""


class Measurement(NamedTuple):
    """A number with its standard error, which is zero for an exact number."""

    value: float
    standard_error: float = 0.0


UNKNOWN = Measurement(math.nan)
"""The measurement where there is nothing to measure."""

# Which rows -------------------------------------------------------------------------------------------------------


class Extreme(enum.Enum):
    """The smallest or largest value of a column among the rows that meet all other conditions."""

    SMALLEST = "smallest"
    LARGEST = "largest"


SMALLEST, LARGEST = Extreme.SMALLEST, Extreme.LARGEST


def where(rows: Rows, *, indices: int | None = None, **wanted: Any) -> list[Mapping[str, Any]]:
    """Return the rows that have these values.

    Args:
        rows: the rows.
        indices: the number of index samples; rows without sampling (column `exact`) are kept, too.
        wanted: for each column the value, a predicate of the value, `SMALLEST` or `LARGEST`.
    """
    found = list(rows)
    if indices is not None:
        found = [row for row in found if row["exact"] or row["num_samples"] == indices]
    for name, value in wanted.items():
        if not isinstance(value, Extreme):
            meets = value if callable(value) else value.__eq__
            found = [row for row in found if name in row and meets(row[name]) is True]
    for name, value in wanted.items():
        if isinstance(value, Extreme) and found:
            best = (min if value is SMALLEST else max)(row[name] for row in found)
            found = [row for row in found if row[name] == best]
    return found


def values_of(rows: Rows, name: str) -> list[Any]:
    """Return the values of a column, in the order of the rows."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))


def value_in(row: Mapping[str, Any], metric: Metric) -> float:
    """Return the value of a metric in a row."""
    return float(row[metric] if isinstance(metric, str) else metric(row))


# Means over what is random ----------------------------------------------------------------------------------------


def mean_over(values: Sequence[float]) -> Measurement:
    """Return a mean and its standard error; NaN for none, and for the error of one."""
    count = len(values)
    if count == 0:
        return Measurement(math.nan, math.nan)
    mean = sum(values) / count
    if count == 1:
        return Measurement(mean, math.nan)
    return Measurement(mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count))


class Design(Protocol):
    """What a measurement is a mean over, and therefore how two sets of rows are compared."""

    def mean(self, rows: Rows, metric: Metric) -> Measurement:
        """Return the mean of a metric."""
        ...

    def difference(self, first: Rows, second: Rows, metric: Metric, other: Metric) -> Measurement:
        """Return the difference of two means; `other` is the metric of the second rows."""
        ...

    def ratio(self, first: Rows, second: Rows, metric: Metric) -> Measurement:
        """Return the ratio of two means, or the mean of ratios."""
        ...


def _ratio_of_means(design: Design, first: Rows, second: Rows, metric: Metric) -> Measurement:
    """Return the ratio of two means by their difference; the error of the second one alone counts as none."""
    base = design.mean(second, metric).value
    found = design.difference(first, second, metric, metric)
    return Measurement(1 + found.value / base, found.standard_error / base)


@dataclass(frozen=True)
class Paired:
    """Runs, paired where two agents share them: seeds, problems, replicas of a bandit.

    Attributes:
        by: columns that tell runs apart; exactly one row, or one of each `within`, is of a run.
        within: columns that a run is averaged over first.
        strata: columns of settings, which are not a sample of anything: means are over settings, and only runs within
            a setting are random.
        of_ratios: whether a ratio is the mean of the runs' ratios; otherwise it is that of the means.
    """

    by: tuple[str, ...] = ("seed",)
    within: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    of_ratios: bool = False

    def values(self, rows: Rows, metric: Metric) -> dict[tuple[Any, ...], float]:
        """Return the metric by stratum, run and what a run is averaged over."""
        found: dict[tuple[Any, ...], float] = {}
        for row in rows:
            name = (*(tuple(row[name] for name in names) for names in (self.strata, self.by, self.within)),)
            if name in found:
                raise ValueError(f"`rows` must have one row of each run; got two of {name}.")
            found[name] = value_in(row, metric)
        return found

    def _mean(self, values: Mapping[tuple[Any, ...], float]) -> Measurement:
        """Return the mean over strata of means over runs."""
        runs: dict[Any, dict[Any, list[float]]] = {}
        for (stratum, run, _), value in values.items():
            runs.setdefault(stratum, {}).setdefault(run, []).append(value)
        means = [mean_over([sum(own) / len(own) for own in stratum.values()]) for stratum in runs.values()]
        if not means:
            return Measurement(math.nan, math.nan)
        error = math.sqrt(sum(mean.standard_error**2 for mean in means)) / len(means)
        return Measurement(sum(mean.value for mean in means) / len(means), error)

    def mean(self, rows: Rows, metric: Metric) -> Measurement:
        """Return the mean over runs; a run where it is not finite makes it not finite."""
        return self._mean(self.values(rows, metric))

    def difference(self, first: Rows, second: Rows, metric: Metric, other: Metric) -> Measurement:
        """Return the mean of paired differences."""
        one, two = self.values(first, metric), self.values(second, other)
        return self._mean({name: one[name] - two[name] for name in sorted(one.keys() & two.keys(), key=str)})

    def ratio(self, first: Rows, second: Rows, metric: Metric) -> Measurement:
        """Return the mean of paired ratios, or the ratio of means by the mean of paired differences."""
        if self.of_ratios:
            one, two = self.values(first, metric), self.values(second, metric)
            return self._mean({name: one[name] / two[name] for name in one if two.get(name)})
        return _ratio_of_means(self, first, second, metric)


@dataclass(frozen=True)
class Bases:
    """Base networks that are judged by the same test pairs.

    The error over pairs does not fall with the number of bases, that over bases does. The two are independent and add
    up. Differences are taken as if independent, which the shared pairs make too careful.

    Attributes:
        match: a column; of the first rows only those count whose value the second rows have, too.
    """

    match: str = ""

    def mean(self, rows: Rows, metric: Metric) -> Measurement:
        """Return the mean over rows; one base does not determine the error over bases."""
        found = mean_over([value_in(row, metric) for row in rows])
        if not rows:
            return found
        over_pairs = sum(float(row.get(f"{metric}_error", 0.0)) for row in rows) / len(rows)
        over_bases = 0.0 if len(rows) == 1 else found.standard_error
        return Measurement(found.value, math.hypot(over_pairs, over_bases))

    def difference(self, first: Rows, second: Rows, metric: Metric, other: Metric) -> Measurement:
        """Return the difference of means."""
        if self.match:
            shared = {row[self.match] for row in second}
            first = [row for row in first if row[self.match] in shared]
        one, two = self.mean(first, metric), self.mean(second, other)
        return Measurement(one.value - two.value, math.hypot(one.standard_error, two.standard_error))

    def ratio(self, first: Rows, second: Rows, metric: Metric) -> Measurement:
        """Return the ratio of means."""
        return _ratio_of_means(self, first, second, metric)


def _error_of(values: Sequence[float]) -> float:
    """Return the standard error of a mean; 0 for one value, which does not determine it."""
    return mean_over(values).standard_error if len(values) > 1 else 0.0


class Crossed:
    """Networks that are all judged by the same blocks of test images: both are samples, and both add to the error.

    Networks that two sets of rows share are paired. Where they share none, as a network and an ensemble, blocks are.
    """

    def _table(self, rows: Rows, metric: Metric) -> dict[tuple[Any, Any], float]:
        """Return the metric by network and block."""
        found: dict[tuple[Any, Any], float] = {}
        for row in rows:
            place = row["network"], row["block"]
            if place in found:
                raise ValueError(f"`rows` must have one row of each network and block; got two of {place}.")
            found[place] = value_in(row, metric)
        return found

    def _means(self, table: Mapping[tuple[Any, Any], float], axis: int) -> dict[Any, float]:
        """Return means by network (0) or by block (1)."""
        groups: dict[Any, list[float]] = {}
        for place, value in table.items():
            groups.setdefault(place[axis], []).append(value)
        return {name: sum(values) / len(values) for name, values in sorted(groups.items())}

    def _mean(self, table: Mapping[tuple[Any, Any], float]) -> Measurement:
        """Return the mean of a table."""
        networks, blocks = (list(self._means(table, axis).values()) for axis in (0, 1))
        return Measurement(mean_over(blocks).value, math.hypot(_error_of(networks), _error_of(blocks)))

    def mean(self, rows: Rows, metric: Metric) -> Measurement:
        """Return the mean over networks and blocks."""
        return self._mean(self._table(rows, metric))

    def _matched(self, first: Rows, second: Rows) -> tuple[Rows, Rows]:
        """Return the rows of the networks that both have; all rows if they share none."""
        shared = {row["network"] for row in first} & {row["network"] for row in second}
        if not shared:
            return first, second
        one, two = ([row for row in rows if row["network"] in shared] for rows in (first, second))
        return one, two

    def difference(self, first: Rows, second: Rows, metric: Metric, other: Metric) -> Measurement:
        """Return the difference of means."""
        first, second = self._matched(first, second)
        one, two = self._table(first, metric), self._table(second, other)
        if one.keys() == two.keys():
            return self._mean({place: one[place] - two[place] for place in one})
        blocks = [self._means(table, 1) for table in (one, two)]
        differences = [blocks[0][name] - blocks[1][name] for name in blocks[0] if name in blocks[1]]
        errors = [_error_of(list(self._means(table, 0).values())) for table in (one, two)]
        return Measurement(mean_over(differences).value, math.hypot(_error_of(differences), *errors))

    def ratio(self, first: Rows, second: Rows, metric: Metric) -> Measurement:
        """Return the ratio of means."""
        first, second = self._matched(first, second)
        return _ratio_of_means(self, first, second, metric)


@dataclass(frozen=True)
class Each:
    """Numbers that are exact, or have a standard error of their own, compared one by one.

    Attributes:
        by: columns that pair rows.
        error: column of the standard error; empty for exact numbers.
        averaged: whether the result is the mean; otherwise it is the largest.
    """

    by: tuple[str, ...]
    error: str = ""
    averaged: bool = False

    def _pairs(self, first: Rows, second: Rows) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Return the rows that belong together."""
        others = {tuple(row[name] for name in self.by): row for row in second}
        keys = [tuple(row[name] for name in self.by) for row in first]
        return [(row, others[key]) for row, key in zip(first, keys, strict=True) if key in others]

    def _error(self, row: Mapping[str, Any]) -> float:
        """Return the standard error of a row."""
        return float(row.get(self.error, 0.0)) if self.error else 0.0

    def _result(self, found: Sequence[Measurement]) -> Measurement:
        """Return the mean, or the largest."""
        if not found:
            return UNKNOWN
        if not self.averaged:
            return max(found, key=lambda one: one.value)
        error = math.hypot(*(one.standard_error for one in found)) / len(found)
        return Measurement(sum(one.value for one in found) / len(found), error)

    def mean(self, rows: Rows, metric: Metric) -> Measurement:
        """Return the mean or the largest of rows."""
        return self._result([Measurement(value_in(row, metric), self._error(row)) for row in rows])

    def difference(self, first: Rows, second: Rows, metric: Metric, other: Metric) -> Measurement:
        """Return the mean or the largest of differences."""
        return self._result(
            [
                Measurement(value_in(a, metric) - value_in(b, other), math.hypot(self._error(a), self._error(b)))
                for a, b in self._pairs(first, second)
            ]
        )

    def ratio(self, first: Rows, second: Rows, metric: Metric) -> Measurement:
        """Return the mean or the largest of ratios to the second rows, whose own errors count as none."""
        found = [(value_in(a, metric), self._error(a), value_in(b, metric)) for a, b in self._pairs(first, second)]
        return self._result([Measurement(value / base, error / base) for value, error, base in found])


class Totals:
    """Sums, such as of costs."""

    def mean(self, rows: Rows, metric: Metric) -> Measurement:
        """Return the sum."""
        return Measurement(sum(value_in(row, metric) for row in rows)) if rows else UNKNOWN

    def difference(self, first: Rows, second: Rows, metric: Metric, other: Metric) -> Measurement:
        """Return the difference of sums."""
        return Measurement(self.mean(first, metric).value - self.mean(second, other).value)

    def ratio(self, first: Rows, second: Rows, metric: Metric) -> Measurement:
        """Return the ratio of sums."""
        return Measurement(self.mean(first, metric).value / self.mean(second, metric).value)


SEEDS = Paired(of_ratios=True)
"""Seeds of an image protocol, or of a bandit."""

BLOCKS = Paired(by=("block",), within=("seed",), of_ratios=True)
"""Blocks of test images of a shipped bank; seeds are averaged over first."""

PROBLEMS = Paired(by=("problem",), strata=("input_dim", "data_ratio", "temperature"))
"""Problems of the Neural Testbed: the seeds of several settings."""

NETWORKS = Crossed()
"""Networks of a shipped bank, judged by blocks of test images."""

BASES = Bases()
"""Base networks of the replication."""

# Slopes, ranks, p-values ------------------------------------------------------------------------------------------


def log_slope(curves: Sequence[Rows], over: str, metric: str = "value", error: str = "standard_error") -> Measurement:
    """Return the slope that curves share on logarithmic axes, by least squares, each with its own height.

    All points weigh the same. Weights from estimated standard errors, which are small where a value came out small,
    would favor such values a little.
    """
    information, product, variance = 0.0, 0.0, 0.0
    for curve in curves:
        logs = [math.log(row[over]) for row in curve]
        center = sum(logs) / len(logs)
        for row, log in zip(curve, logs, strict=True):
            information += (log - center) ** 2
            product += (log - center) * math.log(row[metric])
            variance += ((log - center) * row[error] / row[metric]) ** 2
    return Measurement(product / information, math.sqrt(variance) / information)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks, equal values sharing the mean of theirs."""
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    return below + (equal - 1) / 2


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation; NaN if one of them is constant."""
    a, b = (_ranks(values) - (len(values) - 1) / 2 for values in (first, second))
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number by Holm's method, smallest first."""
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
