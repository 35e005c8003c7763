"""What the artifacts that score agents on problems of the Neural Testbed share: one set of records."""

import math
from collections.abc import Callable
from typing import Any

from ..artifact import Tolerance
from ..claims import Choice, Select, select
from ..configs.testbed import variant_of
from ..stats import PROBLEMS, Measurement, Rows, values_of, where

TESTBED: dict[str, Any] = {
    "seed": 5,
    "run": "testbed:score",
    "groups": "groups",
    "records": "testbed",
    "tolerances": {
        "marginal": Tolerance(absolute=0.02, relative=0.1),
        "joint": Tolerance(absolute=0.1, relative=0.1),
        "marginal_error": Tolerance(absolute=0.01, relative=0.2),
        "joint_error": Tolerance(absolute=0.05, relative=0.2),
        "flops": Tolerance(relative=0.2),
        "seconds": Tolerance(absolute=math.inf),
    },
}


def labels_of(rows: Rows, agent: str) -> list[str]:
    """Return the labels of the variants of an agent, in the order of the rows."""
    return values_of(where(rows, agent=agent), "label")


def mean_of(rows: Rows, label: str, metric: str) -> Measurement:
    """Return an agent's mean of a metric over problems."""
    return PROBLEMS.mean(where(rows, label=label), metric)


def _extreme(agent: str, best: Callable[..., str]) -> Choice:
    """Return the choice of the variant of an agent that has the fewest or the most parameters."""

    def choose(rows: Rows) -> Rows:
        sizes = {label: where(rows, label=label)[0]["parameters"] for label in labels_of(rows, agent)}
        return where(rows, label=best(sizes, key=sizes.__getitem__)) if sizes else []

    return choose


def largest(agent: str) -> Choice:
    """Return the choice of the largest variant of an agent."""
    return _extreme(agent, max)


def smallest(agent: str) -> Choice:
    """Return the choice of the smallest variant of an agent."""
    return _extreme(agent, min)


def epinet(**changes: Any) -> Select:
    """Return the choice of the tuned epinet, or of one with changes."""
    return select(label=variant_of("epinet", **changes).label)
