"""Rows of a CSV, chosen by their values."""

from collections.abc import Callable, Sequence
from typing import Any

from ..record import Row
from .ledger import Measurement

Measure = Callable[[Sequence[Row]], Measurement]
"""What computes the number of a claim."""


def where(rows: Sequence[Row], **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows that have these values."""
    return [dict(row) for row in rows if all(row.get(name) == value for name, value in wanted.items())]
