"""Means over bases of what the replication measures, with errors over bases and over test pairs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]

TAU = 10
NUM_SAMPLES = 1000


def chosen(rows: Rows, **wanted: Any) -> list[Mapping[str, Any]]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def shown(rows: Rows, **wanted: Any) -> list[Mapping[str, Any]]:
    """Return the rows at the figures' tau and M, or exact, at the chosen temperature unless told otherwise."""
    own = chosen(rows, **{"kind": "tuned", "tau": TAU, **wanted})
    return [row for row in own if row["exact"] or row["num_samples"] == NUM_SAMPLES]


def mean_of(rows: Rows, metric: str) -> tuple[float, float]:
    """Return the mean of a metric over rows, and its standard error.

    All bases are judged by the same pairs, so the error over pairs does not fall with the number of bases; that over
    bases does. The two are independent, and add up. NaN for no rows; one base tells nothing of the error over bases.
    """
    values = [float(row[metric]) for row in rows]
    if not values:
        return math.nan, math.nan
    mean = sum(values) / len(values)
    over_pairs = sum(float(row.get(f"{metric}_error", 0.0)) for row in rows) / len(rows)
    if len(values) == 1:
        return mean, over_pairs
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(over_pairs**2 + variance / len(values))


def values_of(rows: Rows, name: str) -> list[Any]:
    """Return the values of a column, in the order of the rows."""
    return list(dict.fromkeys(row[name] for row in rows if name in row))
