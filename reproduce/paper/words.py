"""Numbers as text, and tables of Markdown as runs of text."""

import math
import re
from collections.abc import Iterator
from typing import TypedDict

_MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOST_DECIMALS = 6

# Code, emphasis, or anything else; a bar inside of a cell is escaped.
_RUN = re.compile(r"`(?P<code>[^`]+)`|(?<![\w*])\*(?P<emph>[^*\s][^*]*)\*|(?P<text>[^`*]+|[*`])")


class Run(TypedDict):
    """A stretch of text that is set in one way: "text", "code" or "emph"."""

    kind: str
    text: str


class Table(TypedDict):
    """A table under its heading; a cell is a list of runs."""

    title: str
    columns: list[str]
    rows: list[list[list[Run]]]


def _signed(text: str) -> str:
    """Return a number with a proper minus; there is no negative zero."""
    if not text.strip("-0."):
        text = text.removeprefix("-")
    return text.replace("-", _MINUS)


def _power(exponent: int) -> str:
    """Return a power of ten."""
    return f" {_TIMES} 10{str(exponent).translate(_SUPERSCRIPTS)}"


def number(value: float, digits: int = 3) -> str:
    """Return a number with this many digits; whole ones whole, with commas."""
    if not math.isfinite(value):
        return "not finite"
    if float(value).is_integer() and abs(value) < 1e9:
        return _signed(f"{value:,.0f}")
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    return _signed(mantissa) + (_power(int(exponent)) if exponent else "")


def measured(value: float, error: float) -> str:
    """Return a number with its standard error, both to two digits of the error; without one if it is exact."""
    if math.isnan(value):
        return "not measured"
    if error == 0:
        return number(value)
    if not math.isfinite(error):
        return f"{number(value)} ± unknown"
    decimals = 1 - math.floor(math.log10(error))
    if decimals <= _MOST_DECIMALS:
        places = max(decimals, 0)
        return f"{_signed(f'{value:.{places}f}')} ± {error:.{places}f}"
    exponent = math.floor(math.log10(max(abs(value), error)))
    places, scale = decimals + exponent, 10.0**exponent
    return f"({_signed(f'{value / scale:.{places}f}')} ± {error / scale:.{places}f}){_power(exponent)}"


def size(value: float, error: float) -> str:
    """Return the size of a difference with its standard error, without its sign."""
    return measured(abs(value), error)


def standing(value: float, error: float, *, errors: float = 2.0) -> str:
    """Return whether a difference is "less" or "more" than zero by so many standard errors, or "level".

    What was not measured, or has no known error, is "unknown".
    """
    low, high = value - errors * error, value + errors * error
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    return "less" if high < 0 else "more" if low > 0 else "level"


def duration(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def runs(cell: str) -> list[Run]:
    """Return a cell of Markdown as runs of text."""
    plain = cell.strip().replace("\\|", "|")
    return [Run(kind=str(found.lastgroup), text=found[str(found.lastgroup)]) for found in _RUN.finditer(plain)]


def _cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(markdown: str) -> Iterator[Table]:
    """Yield the tables of a page, each with the heading above it."""
    title = ""
    found: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            found.append(line)
            continue
        if found:
            header, _, *body = found
            yield Table(title=title, columns=_cells(header), rows=[[runs(c) for c in _cells(row)] for row in body])
            found = []
        if line.startswith("#"):
            title = line.lstrip("# ")
