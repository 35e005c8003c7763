"""Means over seeds of what an image protocol trains, with their standard errors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def mean_over(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean and its standard error; NaN for none, and for the error of one."""
    count = len(values)
    if count == 0:
        return math.nan, math.nan
    mean = sum(values) / count
    if count == 1:
        return mean, math.nan
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)


def by_seed(rows: Rows, metric: str, **wanted: Any) -> dict[int, float]:
    """Return a metric by seed, of the rows that have these values; there must be one for each seed."""
    found: dict[int, float] = {}
    for row in rows:
        if all(row.get(name) == value for name, value in wanted.items()):
            if row["seed"] in found:
                raise ValueError(f"`wanted` must single out one row per seed; got two of seed {row['seed']}: {wanted}.")
            found[row["seed"]] = float(row[metric])
    return found


def mean_of(rows: Rows, metric: str, **wanted: Any) -> tuple[float, float]:
    """Return the mean of a metric over seeds, and its standard error."""
    return mean_over(list(by_seed(rows, metric, **wanted).values()))


def shown_at(rows: Rows, counts: Mapping[str, int], default: int) -> list[Mapping[str, Any]]:
    """Return the rows at an agent's number of indices; exact rows are always shown."""
    return [row for row in rows if row["exact"] or row["num_samples"] == counts.get(row["agent"], default)]


def sizes_of(rows: Rows, agent: str) -> list[int]:
    """Return the sizes that an agent has, in increasing order."""
    return sorted({row["size"] for row in rows if row["agent"] == agent})
