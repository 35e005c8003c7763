"""The CSVs of artifacts as rows."""

import csv
from collections.abc import Sequence
from pathlib import Path

from .errors import ReproduceError
from .record import Row, Scalar


def _value(text: str) -> Scalar:
    """Return the value of a cell."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_cells(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the cells of a CSV, as text."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.reader(file))
    except FileNotFoundError:
        raise ReproduceError(f"{path} does not exist; `python -m reproduce run` makes it.") from None
    if not table:
        raise ReproduceError(f"{path} is empty; `python -m reproduce run` makes it again.")
    return table[0], table[1:]


def read_rows(path: Path) -> Sequence[Row]:
    """Return the rows of a CSV; cells that a row does not have are left out."""
    columns, cells = read_cells(path)
    return [{name: _value(text) for name, text in zip(columns, row, strict=True) if text != ""} for row in cells]
