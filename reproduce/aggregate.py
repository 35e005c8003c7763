"""Records to one tidy CSV per artifact, and back to rows."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from .errors import ReproduceError
from .files import write_atomically
from .record import Record, Row, Scalar


def _text(value: Scalar) -> str:
    """Return a value as the CSV has it; nine digits tell every single-precision number apart."""
    return format(value, ".9g") if isinstance(value, float) else str(value)


def _value(text: str) -> Scalar:
    """Return what the text of a cell means."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def to_csv(records: Iterable[Record]) -> str:
    """Return the rows of all records as CSV: one row per row, the union of their columns, the unit's name first."""
    rows = [{"unit": record.unit, **row} for record in records for row in record.rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def write_csv(path: Path, records: Iterable[Record]) -> None:
    """Write the CSV of an artifact, atomically; an unchanged file keeps its time stamp."""
    content = to_csv(records).encode()
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


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
