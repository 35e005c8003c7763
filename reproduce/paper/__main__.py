"""The command line: `python -m reproduce.paper` writes the paper's numbers and figures, and sets it by Typst."""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ReproduceError
from ..files import write_atomically
from ..paths import REFERENCE
from ..style import pictures, style_context
from .content import Shown, content, gather

_ROOT = Path(__file__).parents[2]
SOURCES = _ROOT / "paper"
"""The paper's own sources."""

DEPARTURES = _ROOT / "docs" / "deviations.md"
"""The page with the tables of departures."""


def _version() -> str:
    """Return the version of the software, read from its source: it need not be installed."""
    text = _ROOT.joinpath("src", "epinet_eqx", "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def _draw(shown: Shown, folder: Path) -> None:
    """Draw an artifact that has accepted numbers."""
    if shown.accepted is not None:
        entry = shown.entry
        with style_context():
            figure = entry.draw(shown.rows)
            (picture,) = pictures(figure, "pdf", note=entry.note(shown.accepted.tier))
        write_atomically(folder / f"{entry.id}.pdf", picture)


def prepare(build: Path, reference: Path = REFERENCE) -> None:
    """Make the folder that Typst compiles: the sources, and beside them what is generated from accepted numbers.

    Args:
        build: the folder; what was in it is deleted.
        reference: folder of the accepted CSVs.
    """
    shutil.rmtree(build, ignore_errors=True)
    shutil.copytree(SOURCES, build)
    chosen = gather(reference)
    tree = content(chosen, reference=reference, departures=DEPARTURES, sources=SOURCES, version=_version())
    text = json.dumps(tree, ensure_ascii=False, indent=1, allow_nan=False)
    write_atomically(build / "generated" / "content.json", text.encode())
    for shown in chosen:
        _draw(shown, build / "generated" / "figures")


def compile_paper(build: Path) -> bytes:
    """Return the PDF of a folder that was prepared; only the compiler's own fonts are used."""
    try:
        import typst
    except ImportError:
        raise ReproduceError("The package `typst` must be installed; `nox -s paper` does it.") from None
    try:
        return typst.compile(str(build / "main.typ"), root=str(build), format="pdf", ignore_system_fonts=True)
    except RuntimeError as error:
        raise ReproduceError(f"The sources in {SOURCES} must compile; Typst says: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Build the paper; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduce.paper",
        description="Build the reproducibility paper from the accepted numbers in reproduce/reference.",
    )
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="output folder (default: out)")
    parser.add_argument("--only-prepare", action="store_true", help="write sources, numbers and figures; no PDF")
    arguments = parser.parse_args(argv)
    folder = arguments.out / "paper"
    try:
        prepare(folder / "build")
        if not arguments.only_prepare:
            write_atomically(folder / "epinet_eqx.pdf", compile_paper(folder / "build"))
    except ReproduceError as error:
        print(error, file=sys.stderr)
        return 1
    print(folder / "build" if arguments.only_prepare else folder / "epinet_eqx.pdf")
    return 0


if __name__ == "__main__":
    sys.exit(main())
