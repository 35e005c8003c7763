"""The ledger of claims as text, Markdown and CSV."""

import csv
import io
import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from .claims import LedgerLine, Verdict

_COLUMNS = ("claim", "statement", "paper", "quantity", "measured", "standard error", "rule", "verdict")


def _number(value: float) -> str:
    """Return a number with four digits; NaN stands for a quantity that the tier does not measure."""
    return "not measured" if math.isnan(value) else format(value, ".4g")


def _error(line: LedgerLine) -> str:
    """Return the standard error, or that there is none."""
    error = line.measurement.standard_error
    if math.isnan(line.measurement.value):
        return ""
    return _number(error) if error else "exact"


def _cells(line: LedgerLine) -> tuple[str, ...]:
    """Return the cells of one line."""
    claim = line.claim
    measured = _number(line.measurement.value)
    return (
        claim.id,
        claim.statement,
        claim.location,
        claim.quantity,
        measured,
        _error(line),
        str(claim.rule),
        line.verdict.value,
    )


def as_csv(lines: Iterable[LedgerLine]) -> str:
    """Return the ledger as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_cells(line) for line in lines)
    return buffer.getvalue()


def _page(title: str, rows: Iterable[Sequence[str]], columns: Sequence[str]) -> str:
    """Return a table under its title as Markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"# {title}\n\n{table}\n"


def as_markdown(lines: Iterable[LedgerLine], *, tier: str) -> str:
    """Return the ledger as a page of Markdown."""
    return _page(f"Claims at tier {tier}", map(_cells, lines), _COLUMNS)


def best_as_markdown(lines: Iterable[tuple[LedgerLine, str]]) -> str:
    """Return the ledger of the best evidence as a page of Markdown; each line comes with what it was judged on."""
    rows = ((*_cells(line), evidence) for line, evidence in lines)
    return _page("Claims by the best accepted numbers", rows, (*_COLUMNS, "judged on"))


def number_of(line: LedgerLine) -> str:
    """Return a measurement with its standard error."""
    error = _error(line)
    return _number(line.measurement.value) + (f" ± {error}".replace("± exact", "(exact)") if error else "")


def why_undecided(line: LedgerLine) -> str:
    """Return why a claim is undecided; empty for one that is decided."""
    if line.verdict is not Verdict.UNDECIDED:
        return ""
    if math.isnan(line.measurement.value):
        return "this tier does not measure it"
    if math.isnan(line.measurement.standard_error):
        return "a single seed or problem has no standard error"
    return "the error bar reaches across the bound"


def as_text(lines: Sequence[LedgerLine], *, width: int = 100) -> str:
    """Return the ledger for a terminal: a line of numbers per claim, its statement below."""
    if not lines:
        return "No claims to judge.\n"
    blocks = []
    for line in lines:
        measured = number_of(line)
        why = f"; undecided: {reason}" if (reason := why_undecided(line)) else ""
        blocks.append(
            f"{line.verdict.value + ' ':<14}{line.claim.id}\n"
            + textwrap.fill(
                f"{line.claim.statement} ({line.claim.location})",
                width,
                initial_indent=" " * 14,
                subsequent_indent=" " * 14,
            )
            + "\n"
            + textwrap.fill(
                f"{line.claim.quantity}: {measured}; rule: {line.claim.rule}{why}",
                width,
                initial_indent=" " * 14,
                subsequent_indent=" " * 14,
            )
        )
    counts = Counter(line.verdict.value for line in lines)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return "\n".join(blocks) + f"\n\n{len(lines)} claims: {summary}\n"
