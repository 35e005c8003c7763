"""Means over problems of several settings, with the standard error over the seeds within each setting."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
_SETTING = ("input_dim", "data_ratio", "temperature")


def _values(rows: Rows, label: str, metric: str) -> dict[int, tuple[tuple[Any, ...], float]]:
    """Return setting and value of each problem that an agent was scored on."""
    own = [row for row in rows if row["label"] == label]
    return {row["problem"]: (tuple(row[name] for name in _SETTING), float(row[metric])) for row in own}


def _mean(values: Sequence[tuple[tuple[Any, ...], float]]) -> tuple[float, float]:
    """Return the mean over settings, and its standard error over seeds; NaN where a setting has but one seed.

    Settings are not a sample of anything: only seeds within a setting are random.
    """
    by_setting: dict[tuple[Any, ...], list[float]] = {}
    for setting, value in values:
        by_setting.setdefault(setting, []).append(value)
    if not by_setting:
        return math.nan, math.nan
    means, variances = [], []
    for own in by_setting.values():
        mean = sum(own) / len(own)
        means.append(mean)
        spread = sum((value - mean) ** 2 for value in own)
        variances.append(spread / (len(own) - 1) / len(own) if len(own) > 1 else math.nan)
    return sum(means) / len(means), math.sqrt(sum(variances)) / len(means)


def mean_of(rows: Rows, label: str, metric: str) -> tuple[float, float]:
    """Return an agent's mean of a metric and its standard error. Problems where it is not finite make it not finite."""
    return _mean(list(_values(rows, label, metric).values()))


def difference_of(rows: Rows, label: str, other: str, metric: str) -> tuple[float, float]:
    """Return the mean of a metric of one agent minus that of another, paired by problem, and its standard error."""
    own, others = _values(rows, label, metric), _values(rows, other, metric)
    shared = sorted(own.keys() & others.keys())
    return _mean([(own[problem][0], own[problem][1] - others[problem][1]) for problem in shared])


def labels_of(rows: Rows, agent: str) -> list[str]:
    """Return the labels of the variants of an agent, in the order of the rows."""
    return list(dict.fromkeys(row["label"] for row in rows if row["agent"] == agent))


def as_one(rows: Rows, agent: str) -> list[Mapping[str, Any]]:
    """Return the rows with one label for all variants of an agent: those that stand for it on different problems."""
    return [{**row, "label": agent} if row["agent"] == agent else row for row in rows]
