"""The front page of results: one HTML file with figures, ledger, numbers beside the accepted ones, and costs.

It loads nothing: pictures are in it, and so are its style and its filters. Links to records and CSVs are relative.
"""

import base64
import html
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from .accepted import BEST_FIRST, best_accepted, read_manifest
from .aggregate import read_cells, read_rows
from .artifact import Artifact
from .claims import LedgerLine, Verdict
from .evidence import PARTS, is_ours, part_of
from .files import write_atomically
from .ledger import number_of, why_undecided
from .paper.words import duration
from .paths import Output
from .record import Records
from .registry import REGISTRY, select
from .results import judged, origin
from .verify import compare, deviation

_TEMPLATE = Path(__file__).with_name("page.html")

# More rows of a table than anybody reads are left to the CSV; those that deviate are always shown.
_MOST_ROWS = 60

# A verdict in addresses and style, and of several claims.
_NAMES = {verdict: verdict.name.lower() for verdict in Verdict}
_OF_SEVERAL = {
    Verdict.HOLDS: "hold",
    Verdict.FAILS: "do not hold",
    Verdict.EQUAL: "equal within their margins",
    Verdict.UNDECIDED: "are undecided",
}


@dataclass(frozen=True, kw_only=True)
class Section:
    """One artifact on the page.

    Attributes:
        artifact: the artifact.
        tier: the tier of its numbers.
        csv: its numbers.
        accepted: the accepted numbers to compare them with, if there are any.
        picture: its figure, if any.
        lines: its claims.
        origin: where the numbers come from.
        links: files to link to, by the words of the link.
    """

    artifact: Artifact
    tier: str
    csv: Path
    accepted: Path | None
    picture: Path | None
    lines: Sequence[LedgerLine]
    origin: Mapping[str, Any]
    links: Mapping[str, str]


def _text(value: object) -> str:
    """Return a value as text of a page."""
    return html.escape(str(value))


def _told(verdict: Verdict, count: int) -> str:
    """Return a verdict after the number of claims that have it."""
    return verdict.value if count == 1 else _OF_SEVERAL[verdict]


def _claim(section: Section, line: LedgerLine) -> str:
    """Return a row of the ledger."""
    claim, verdict = line.claim, _NAMES[line.verdict]
    why = why_undecided(line)
    where = f"{claim.id} · {claim.location} · tier {section.tier} · "
    return (
        f'<tr data-verdict="{verdict}" data-artifact="{section.artifact.id}">'
        f'<td class="verdict {verdict}">{_text(line.verdict.value)}</td>'
        f'<td>{_text(claim.statement)}<span class="was">{_text(where)}'
        f'<a href="#{section.artifact.id}">figure and numbers</a></span></td>'
        f"<td>{_text(number_of(line))}<span class='was'>{_text(claim.quantity)}</span></td>"
        f"<td>{_text(claim.rule)}" + (f'<span class="was">{_text(why)}</span>' if why else "") + "</td></tr>"
    )


def _cell(fresh: str, known: str | None, share: float) -> str:
    """Return a cell of a table; `share` is its deviation from the accepted one as a fraction of what is allowed."""
    if known is None or fresh == known:
        return f"<td>{_text(fresh)}</td>"
    kind = "within" if share <= 1 else "beyond"
    return f'<td class="{kind}">{_text(fresh)}<span class="was">accepted: {_text(known)}</span></td>'


def _numbers(section: Section) -> tuple[str, str]:
    """Return how the numbers compare with the accepted ones in words, and the numbers as a table."""
    columns, rows = read_cells(section.csv)
    known: list[list[str]] | None = None
    words = ""
    if section.accepted is not None:
        known_columns, known_rows = read_cells(section.accepted)
        if columns == known_columns and len(rows) == len(known_rows):
            known = known_rows
        else:
            words = '<span class="fails">The accepted numbers have other rows or columns.</span>'
    shares = [
        [
            deviation(cell, known[place][at], section.artifact.tolerances.get(columns[at])) if known else 0.0
            for at, cell in enumerate(row)
        ]
        for place, row in enumerate(rows)
    ]
    if known is not None:
        beyond = sum(share > 1 for row in shares for share in row)
        words = (
            f'<span class="fails">Numbers that deviate from the accepted ones by more than is allowed: {beyond}.</span>'
            if beyond
            else f'<span class="holds">All {len(rows)} rows agree with the accepted ones.</span>'
        )
    # Those that deviate first.
    order = sorted(range(len(rows)), key=lambda place: all(share <= 1 for share in shares[place]))
    shown = [place for at, place in enumerate(order) if at < _MOST_ROWS or any(share > 1 for share in shares[place])]
    body = "".join(
        "<tr>"
        + "".join(
            _cell(cell, known[place][at] if known else None, shares[place][at]) for at, cell in enumerate(rows[place])
        )
        + "</tr>"
        for place in sorted(shown)
    )
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    part = f"{len(shown)} of {len(rows)} rows" if len(shown) < len(rows) else f"{len(rows)} rows"
    return words, (
        f'<details><summary>Numbers: {part}</summary><div class="scroll"><table class="numbers">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _card(section: Section) -> str:
    """Return the card of an artifact: its figure, verdicts and numbers."""
    artifact = section.artifact
    picture = ""
    if section.picture is not None:
        content = base64.b64encode(section.picture.read_bytes()).decode()
        picture = f'<img src="data:image/png;base64,{content}" alt="{_text(artifact.title)}" loading="lazy">'
    counts = Counter(line.verdict for line in section.lines)
    told = ", ".join(
        f'<a class="{_NAMES[verdict]}" href="#verdict={_NAMES[verdict]}&amp;artifact={artifact.id}">'
        f"{counts[verdict]} {_told(verdict, counts[verdict])}</a>"
        for verdict in Verdict
        if counts[verdict]
    )
    words, numbers = _numbers(section)
    links = " · ".join(f'<a href="{_text(target)}">{_text(name)}</a>' for name, target in section.links.items())
    note = artifact.note(section.tier) or f"tier {section.tier}"
    return (
        f'<section class="card" id="{artifact.id}"><h3>{_text(artifact.title)}</h3>'
        f'<p class="soft">{artifact.id} · {_text(artifact.label)} · {_text(note)}</p>{picture}'
        f"<p>Claims: {told or 'none'}. {words}</p>{numbers}<p>{links}</p></section>"
    )


def _cost(section: Section) -> str:
    """Return a row of the table of costs."""
    found, artifact = section.origin, section.artifact
    seconds = found.get("seconds")
    versions = found.get("versions", {})
    versions = versions if isinstance(versions, list) else [versions]
    words = [", ".join(f"{name} {one[name]}" for name in ("jax", "equinox") if name in one) for one in versions]
    return (
        f"<tr><td>{artifact.id}</td><td class='amount'>{_text(found.get('units', 'not recorded'))}</td>"
        f"<td class='amount'>{'not recorded' if seconds is None else duration(seconds)}</td>"
        f"<td class='amount'>{_text(artifact.time(section.tier))}</td><td>{_text(artifact.machine(section.tier))}</td>"
        f"<td>{_text('; '.join(words))}</td></tr>"
    )


def _evidence(sections: Sequence[Section]) -> str:
    """Return the table of verdicts by kind of evidence, of the paper's claims and of ours."""
    found = Counter(
        (part_of(section.artifact, section.tier), is_ours(line.claim), line.verdict)
        for section in sections
        for line in section.lines
    )
    kinds = [(ours, verdict) for ours in (False, True) for verdict in Verdict]
    head = "".join(f"<th class='amount'>{_text(verdict.value)}</th>" for _, verdict in kinds)
    rows = "".join(
        f"<tr><td>{_text(words)}</td>"
        + "".join(f"<td class='amount'>{found[part, ours, verdict]}</td>" for ours, verdict in kinds)
        + "</tr>"
        for part, words in PARTS.items()
        if any(own == part for own, _, _ in found)
    )
    whose = "".join(f'<th colspan="{len(Verdict)}">{words}</th>' for words in ("the paper's claims", "our claims"))
    return f'<thead><tr><th rowspan="2">evidence</th>{whose}</tr><tr>{head}</tr></thead><tbody>{rows}</tbody>'


def _agreement(sections: Sequence[Section]) -> str:
    """Return which artifacts agree with their accepted numbers, as a sentence; empty if there are none to compare."""
    compared = [
        compare(one.artifact.id, one.csv, one.accepted, one.artifact.tolerances)
        for one in sections
        if one.accepted is not None
    ]
    if not compared:
        return ""
    apart = [one.artifact for one in compared if one.differences]
    if not apart:
        return f'<p class="holds">All {len(compared)} artifacts that have accepted numbers agree with them.</p>'
    links = ", ".join(f'<a href="#{artifact}">{artifact}</a>' for artifact in apart)
    return f'<p class="fails">{len(apart)} of {len(compared)} artifacts deviate from the accepted numbers: {links}.</p>'


def as_page(
    sections: Sequence[Section], *, title: str, about: str, links: Mapping[str, str], waiting: Iterable[str] = ()
) -> str:
    """Return the page.

    Args:
        sections: its artifacts, in order.
        title: its title.
        about: a sentence below.
        links: files to link to, by the words of the link.
        waiting: ids of artifacts that are not computed.
    """
    counts = Counter(line.verdict for section in sections for line in section.lines)
    told = "".join(
        f'<li class="{_NAMES[verdict]}"><strong>{counts[verdict]}</strong> {_told(verdict, counts[verdict])}</li>'
        for verdict in Verdict
    )
    compared = any(section.accepted is not None for section in sections)
    legend = (
        "Numbers that differ from the accepted ones are colored: blue within the tolerance, red beyond it."
        if compared
        else "These are the accepted numbers, at the best tier that each artifact has."
    )
    missing = ", ".join(waiting)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=_text(title),
        about=_text(about),
        counts=told,
        agreement=_agreement(sections),
        evidence=_evidence(sections),
        links="".join(f'<a href="{_text(target)}">{_text(name)}</a>' for name, target in links.items()),
        options="".join(
            f'<option value="{one.artifact.id}">{one.artifact.id}</option>' for one in sections if one.lines
        ),
        claims="".join(_claim(section, line) for section in sections for line in section.lines),
        legend=_text(legend),
        cards="".join(_card(section) for section in sections),
        costs="".join(_cost(section) for section in sections),
        footer=_text(f"Not computed: {missing}." if missing else ""),
    )


def _relative(path: Path, folder: Path) -> str:
    """Return a path as a link from a page in a folder."""
    return Path(os.path.relpath(path, folder)).as_posix()


def write_page(records: Records, lines: Mapping[str, Sequence[LedgerLine]], reference: Path) -> Path:
    """Write the page of an output folder, and return where it is.

    Args:
        records: the records of the folder.
        lines: the claims of each artifact that is complete, by its id.
        reference: folder of the accepted CSVs.
    """
    output = records.output
    manifest = {} if output.variant.name else read_manifest(reference)
    sections = []
    for name, own in lines.items():
        artifact = REGISTRY[name].at(output.tier, output.variant)
        accepted = reference / output.tier / f"{name}.csv"
        is_whole = not manifest.get(f"{output.tier}/{name}.csv", {"missing": 1}).get("missing", 0)
        picture = output.figure(name, "png")
        files = {
            "figure (PDF)": output.figure(name, "pdf"),
            "numbers (CSV)": output.csv(name),
            "records": output.record(artifact.folder, "unit").parent,
        }
        sections.append(
            Section(
                artifact=artifact,
                tier=output.tier,
                csv=output.csv(name),
                accepted=accepted if is_whole and accepted.exists() else None,
                picture=picture if picture.exists() else None,
                lines=own,
                origin=origin(artifact, records),
                links={words: _relative(path, output.folder) for words, path in files.items() if path.exists()},
            )
        )
    chosen = select(tier=output.tier, variant=output.variant)
    page = as_page(
        sections,
        title=f"Epistemic Neural Networks, reproduced: tier {output.tier}",
        about=_about(output, len(sections)),
        links={"Ledger as Markdown": "claims.md", "as CSV": "claims.csv"},
        waiting=[artifact.id for artifact in chosen if artifact.id not in lines],
    )
    path = output.folder / "index.html"
    write_atomically(path, page.encode())
    return path


def _about(output: Output, count: int) -> str:
    """Return a sentence about the page."""
    data = f" {output.variant.words(output.tier)}." if output.variant.name else ""
    return f"{count} artifacts are computed at this tier.{data}"


def accepted_page(reference: Path) -> str:
    """Return the page of the accepted numbers, each artifact at the best tier that has all of them.

    Args:
        reference: folder of the accepted CSVs.
    """
    sections, waiting = [], []
    for artifact in REGISTRY.values():
        accepted = best_accepted(artifact.id, reference)
        if accepted is None:
            waiting.append(artifact.id)
            continue
        picture = reference / accepted.tier / "figures" / f"{artifact.id}.png"
        sections.append(
            Section(
                artifact=artifact.at(accepted.tier),
                tier=accepted.tier,
                csv=accepted.path,
                accepted=None,
                picture=picture if picture.exists() else None,
                lines=judged(artifact.at(accepted.tier), read_rows(accepted.path)),
                origin=accepted.origin,
                links={},
            )
        )
    tiers = [tier for tier in BEST_FIRST if any(section.tier == tier for section in sections)]
    return as_page(
        sections,
        title="Epistemic Neural Networks, reproduced: the accepted numbers",
        about=f"Best first, the tiers are {', '.join(tiers)}; each artifact is shown at the best that it has.",
        links={"Documentation": "index.html"},
        waiting=waiting,
    )
