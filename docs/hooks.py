"""What MkDocs does to pages beyond Markdown: math as MathML, tables of artifacts, and a look at what pages load.

The site works without a network: formulas become MathML when it is built, and no page may load anything from elsewhere.
"""

import html
import math
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# `reproduce` is not installed; of it, only parts that need no JAX are used here.
sys.path.insert(0, str(Path(__file__).parent.parent))

from reproduce.accepted import BEST_FIRST, Accepted, best_accepted
from reproduce.aggregate import read_rows
from reproduce.artifact import Artifact
from reproduce.artifacts.rep_scaling import table as replication_table
from reproduce.claims import Claim, judge
from reproduce.page import accepted_page
from reproduce.paper.origins import machine_rows
from reproduce.paper.words import measured as as_text
from reproduce.paths import LICENSES, REFERENCE
from reproduce.registry import CLAIMS, JUDGED_BY, REGISTRY

TIERS = [tier for tier in reversed(BEST_FIRST) if any(tier in entry.tiers for entry in REGISTRY.values())]

# The verdict on a claim without accepted numbers.
_WAITING = "not accepted yet"

# A number and its unit stay on one line.
_SPACE = "\N{NO-BREAK SPACE}"

# What `pymdownx.arithmatex` leaves of a formula: inline, and a display of its own.
_MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)

# Tags that make a browser fetch something; a plain link does not.
_LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="(https?:)?//[^>]*>|<link[^>]*\shref="https?://[^>]*>')
# Links of the head that say where a page lives, and fetch nothing.
_HARMLESS = re.compile(r'rel="(?:canonical|prev|next)"')


# A formula of more characters than this may be wider than a phone.
_LONG_MATH = 36

# Letters in typewriter style one by one, which browsers draw in italics.
_TYPEWRITER = re.compile(r'(?:<mi mathvariant="monospace">\w</mi>)+')
# The sign of "is drawn from" as an identifier, which has no space around it.
_DRAWN, _DRAWN_FROM = "<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"
# Upright words letter by letter; and logarithms, which no space keeps apart from what follows.
_UPRIGHT = re.compile(r'(?:<mi mathvariant="normal">[a-zA-Z]</mi>){2,}')
_LOGARITHM = re.compile(r"<mi>ln</mi>(?!<mo[^>]*>&#x00028;)")


def to_mathml(tex: str, *, display: bool) -> str:
    """Return a formula as MathML, which browsers draw themselves."""
    import latex2mathml.converter

    mathml = latex2mathml.converter.convert(html.unescape(tex).strip(), display="block" if display else "inline")
    mathml = _TYPEWRITER.sub(lambda word: f'<mtext class="typewriter">{re.sub("<.*?>", "", word[0])}</mtext>', mathml)
    mathml = _UPRIGHT.sub(lambda word: f"<mi>{re.sub('<.*?>', '', word[0])}</mi>", mathml)
    mathml = _LOGARITHM.sub('<mi>ln</mi><mspace width="0.167em" />', mathml.replace(_DRAWN, _DRAWN_FROM))
    # A tilde is an accent, and stands close to its letter.
    return re.sub(r"<mover>(<mi>\w</mi><mo[^>]*>&#x0007E;</mo></mover>)", r'<mover accent="true">\1', mathml)


def convert_math(content: str) -> str:
    """Return a page with its formulas as MathML; a long one within a line may be scrolled on a narrow screen."""

    def converted(found: re.Match[str]) -> str:
        is_display = found[1] == "div"
        mathml = to_mathml(found[2], display=is_display)
        is_long = not is_display and len(found[2]) > _LONG_MATH
        return f'<span class="long-math">{mathml}</span>' if is_long else mathml

    return _MATH.sub(converted, content)


def unescape_bars(content: str) -> str:
    """Return a page whose cells have plain bars: Markdown needs them escaped, and leaves it so in code."""
    return re.sub(r"<td[^>]*>.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), content, flags=re.DOTALL)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of which is the header, as a Markdown table."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _nox_session(entry: Artifact) -> str:
    """Return the nox session of an artifact; what is beyond the paper reproduces nothing."""
    return entry.session if entry.session == "decisions" else f"reproduce_{entry.session}"


def artifact_table(chosen: Sequence[Artifact]) -> str:
    """Return artifacts as a table: what each shows, what of, how long it takes, on what, and how to get it."""
    tiers = [tier for tier in TIERS if any(tier in entry.tiers for entry in chosen)]
    header = ["artifact", "what it shows", "computed from", "claims", *tiers, "hardware", "command"]
    rows = [
        [
            f"`{entry.id}`",
            entry.title,
            entry.data,
            str(len(entry.claims)),
            *(entry.time(tier).replace(" ", _SPACE) for tier in tiers),
            entry.hardware,
            f"`nox -s {_nox_session(entry)} -- --only {entry.id}`",
        ]
        for entry in chosen
    ]
    return _table([header, *rows])


def _expectation(claim: Claim, accepted: Accepted | None) -> list[str]:
    """Return what a claim says, and what was measured where numbers have been accepted."""
    said = [f"`{claim.id}`", f"{claim.statement} ({claim.location})"]
    if accepted is None:
        return [*said, "", _WAITING, ""]
    line = judge(claim, read_rows(accepted.path))
    if math.isnan(line.measurement.value):
        return [*said, "", "not measured", accepted.tier]
    measured = as_text(line.measurement.value, line.measurement.standard_error).replace(" ", _SPACE)
    return [*said, f"{claim.quantity}: {measured}", line.verdict.value, accepted.tier]


def expectations(chosen: Sequence[Artifact]) -> str:
    """Return the claims of artifacts with their accepted measurements, as a table that can be unfolded."""
    rows = [_expectation(claim, best_accepted(entry.id, REFERENCE)) for entry in chosen for claim in entry.claims]
    table = _table([["claim", "statement", "measured", "verdict", "tier"], *rows])
    found = Counter(row[3] for row in rows)
    words = {
        "holds": "hold",
        "does not hold": "do not hold",
        "equal within the margin": "are equal within their margins",
        "undecided": "are undecided",
        "not measured": "have no value",
    }
    told = [f"{found[verdict]} {words[verdict]}" for verdict in words if found[verdict]]
    told += [f"{found[_WAITING]} have no accepted numbers yet"] if found[_WAITING] else []
    title = f"What to expect: of {len(rows)} claims, {', '.join(told)}"
    return f'??? info "{title}"\n\n' + textwrap.indent(table, "    ")


def fill_in_artifacts(markdown: str) -> str:
    """Return a page with each `<!-- artifacts: SESSION -->` replaced by what the index and the ledger say."""

    def filled(found: re.Match[str]) -> str:
        chosen = [entry for entry in REGISTRY.values() if entry.session == found[1]]
        if not chosen:
            raise ValueError(f"`artifacts` must name a session of the index; got {found[1]!r}.")
        return f"{artifact_table(chosen)}\n\n{expectations(chosen)}"

    return re.sub(r"<!-- artifacts: (\w+) -->", filled, markdown)


_DIFFERENCE = re.compile(r" - |minus|difference|change|gain")


def _measured(claim: Claim) -> str:
    """Return what was measured for a claim, as it stands in a sentence."""
    accepted = best_accepted(JUDGED_BY[claim.id].id, REFERENCE)
    if accepted is None:
        return "(not accepted yet)"
    found = judge(claim, read_rows(accepted.path)).measurement
    # Shares, ratios and counts are never negative: only a difference is told from them by its sign.
    sign = "+" if found.value > 0 and _DIFFERENCE.search(claim.quantity) else ""
    return sign + as_text(found.value, found.standard_error).replace(" ", _SPACE)


def fill_in_measurements(markdown: str) -> str:
    """Return a page with each `<!-- measured: CLAIM -->` and `<!-- replication -->` replaced by accepted numbers."""

    def measured(found: re.Match[str]) -> str:
        if found[1] not in CLAIMS:
            raise ValueError(f"`measured` must name a claim of the ledger; got {found[1]!r}.")
        return _measured(CLAIMS[found[1]])

    def table(found: re.Match[str]) -> str:
        accepted = best_accepted("rep_scaling", REFERENCE)
        if accepted is None:
            return "(not accepted yet)"
        numbers = replication_table(read_rows(accepted.path))
        return '??? info "All numbers of ensembles and epinets"\n\n' + textwrap.indent(numbers, "    ")

    return re.sub(r"<!-- measured: ([\w-]+) -->", measured, re.sub(r"<!-- replication -->", table, markdown))


def fill_in_licenses(markdown: str) -> str:
    """Return a page with `<!-- licenses -->` replaced by the table of data, weights and derived arrays."""
    keys = {"name": "what", "kind": "kind", "terms": "terms", "stated": "stated in", "shipped": "in the repository?"}
    columns = {**keys, "used_by": "used by"}

    def table(found: re.Match[str]) -> str:
        items = tomllib.loads(LICENSES.read_text(encoding="utf-8"))["item"]
        return _table([list(columns.values()), *([item[key] for key in columns] for item in items)])

    return re.sub(r"<!-- licenses -->", table, markdown)


def fill_in_machines(markdown: str) -> str:
    """Return a page with `<!-- machines -->` replaced by the machines and settings on which `verify` was recorded."""
    keys = {"machine": "machine", "setting": "setting", "numbers": "numbers"}
    columns = {
        **keys,
        "digits": "to the last digit",
        "tolerance": "within tolerances",
        "apart": "do not agree",
        "verdicts": "same verdicts",
    }

    def table(found: re.Match[str]) -> str:
        rows = machine_rows(REFERENCE)
        return _table([list(columns.values()), *([row[key] for key in columns] for row in rows)])

    return re.sub(r"<!-- machines -->", table, markdown)


def loaded_from_elsewhere(page: str) -> list[str]:
    """Return the tags of a page that would fetch something from another host."""
    return [found[0] for found in _LOADED.finditer(page) if not _HARMLESS.search(found[0])]


def replication_figures() -> dict[str, Path]:
    """Return the accepted figures of real CIFAR-10, of the replication and from the shipped bank, by name."""
    found = [("replication", "*.png"), ("laptop", "rep_*.png"), ("laptop", "fig10.png")]
    return {path.name: path for tier, names in found for path in sorted((REFERENCE / tier / "figures").glob(names))}


def on_files(files: Any, config: Any) -> Any:
    """Add the accepted figures of real CIFAR-10, which pages show as `figures/ID.png`, and the page of results."""
    from mkdocs.structure.files import File

    for name, path in replication_figures().items():
        files.append(File.generated(config, f"figures/{name}", abs_src_path=str(path)))
    files.append(File.generated(config, "results.html", content=accepted_page(REFERENCE)))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Fill in artifacts, measurements, licenses and machines where a page asks for them."""
    return fill_in_machines(fill_in_licenses(fill_in_measurements(fill_in_artifacts(markdown))))


def on_page_content(content: str, **kwargs: Any) -> str:
    """Draw the formulas, and show the code in tables as it is."""
    return unescape_bars(convert_math(content))


def on_post_page(output: str, page: Any, **kwargs: Any) -> str:
    """Stop the build if a page needs a network."""
    from mkdocs.exceptions import PluginError

    if found := loaded_from_elsewhere(output):
        raise PluginError(f"{page.file.src_path} must load nothing from another host; it has {found[0]}.")
    return output
