"""The Python blocks of pages, run as a reader would run them: in order, in one namespace for each page.

`python docs/run_pages.py RESULTS.json FOLDER PAGE...` runs each page in a folder of its own and writes what every block
printed. A block that is followed by a `text` block shows there what it prints.
"""

import contextlib
import io
import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent

# Blocks may stand inside of an admonition or a column, with a margin.
_BLOCK = re.compile(r"^(?P<margin> *)```python\n(?P<code>.*?)^(?P=margin)```\n", re.DOTALL | re.MULTILINE)
_SHOWN = re.compile(r"\s*^(?P<margin> *)```text\n(?P<text>.*?)^(?P=margin)```\n", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One block of code.

    Attributes:
        code: the code, without its margin.
        line: number of the line before the code, so that errors name the line of the page.
        shown: what the page says that the block prints, or None.
        span: where the text of `shown` stands in the page.
    """

    code: str
    line: int
    shown: str | None
    span: tuple[int, int]


def _strip_margin(text: str, margin: str) -> str:
    """Return lines without their margin."""
    return re.sub(f"^{margin}", "", text, flags=re.MULTILINE)


def read_blocks(text: str) -> list[Block]:
    """Return the Python blocks of a page, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        line = text[: match.start("code")].count("\n")
        shown = _SHOWN.match(text, match.end())
        margin = match["margin"]
        if shown is None:
            found.append(Block(_strip_margin(match["code"], margin), line, None, (match.end(), match.end())))
        else:
            printed = _strip_margin(shown["text"], shown["margin"])
            found.append(Block(_strip_margin(match["code"], margin), line, printed, shown.span("text")))
    return found


def run_page(path: Path, folder: Path) -> list[str]:
    """Run a page in a folder and return what each of its blocks printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder):
        for block in read_blocks(path.read_text()):
            # Empty lines before the code give it the line numbers of the page.
            program = compile("\n" * block.line + block.code, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(program, namespace)
            printed.append(output.getvalue())
    return printed


def main(results: str, folder: str, *pages: str) -> None:
    """Run pages one after another; a page that fails leaves its error in place of what was printed."""
    # Pictures are drawn without a screen, and figures of a page are not those of the next one.
    os.environ["MPLBACKEND"] = "Agg"
    found: dict[str, Any] = {}
    for page in pages:
        try:
            found[page] = run_page(DOCS / page, Path(folder).resolve() / page.removesuffix(".md").removeprefix("../"))
        except Exception:
            found[page] = traceback.format_exc()
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
