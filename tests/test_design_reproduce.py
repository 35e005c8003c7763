"""The way from a session to a picture and a line of the ledger in docs/design.md is the one that a run takes."""

import dataclasses
import inspect
import pathlib
import re
import sys

import pytest

import reproduce
from reproduce import __main__ as command_line
from reproduce import provenance
from reproduce.configs.banked import Folds
from reproduce.configs.imagenet import Bank, BankStudy
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

FOLDER = pathlib.Path(reproduce.__file__).parent
SECTION = (FOLDER.parent / "docs" / "design.md").read_text().split("to a picture and a line of the ledger\n")[1]
PICTURE, REST = SECTION.split("```")[1:3]
LISTED = [line.split()[0].removeprefix("reproduce/") for line in PICTURE.strip().splitlines()]
TRUSTED = re.findall(r"`([\w/]+)`", REST.split("`tests/")[0])
FIGURE = "fig02"


def is_trusted(file):
    """Whether the page says that a reader may pass over a file; a folder stands for all that is not in the picture."""
    return any(
        file.startswith(name) and file not in LISTED if name.endswith("/") else file == f"{name}.py" for name in TRUSTED
    )


@pytest.fixture
def run(monkeypatch):
    """Run the figure on few images of one network, and return the functions that are called, each with its file."""
    bank = Bank(folds=Folds(limit=80, num_tuning=8, tuning_samples=4, temperatures=(0.7, 1.0)))
    study = BankStudy(parts=("base",), bank=bank, networks=("squeezenet1_1",))
    own = REGISTRY[FIGURE]
    monkeypatch.setitem(REGISTRY, FIGURE, dataclasses.replace(own, tiers={**own.tiers, "laptop": study}))
    monkeypatch.setattr(provenance, "_git_commit", lambda: None)

    def calls(*options):
        found = set()

        def note(frame, event, _):
            code = frame.f_code
            is_function = code.co_flags & inspect.CO_NEWLOCALS
            if event == "call" and is_function and code.co_filename.startswith(str(FOLDER)):
                found.add((str(pathlib.Path(code.co_filename).relative_to(FOLDER)), code.co_name))

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            assert command_line.main(["run", "--only", FIGURE, "--quiet", *options]) == 0
        finally:
            sys.setprofile(before)
        return found

    return calls


def test_a_session_passes_the_files_of_the_picture_and_at_most_fifteen(run, tmp_path):
    assert LISTED[0] == "noxfile.py" and len(LISTED) == len(set(LISTED)) <= 15
    assert not [name for name in LISTED if is_trusted(name)]
    found = run("--out", str(tmp_path))
    assert {file for file, _ in found if not is_trusted(file)} == set(LISTED[1:])
    # Other artifacts only say which units they have.
    others = {name for file, name in found if file.startswith("artifacts/") and file not in LISTED}
    assert {name for name in others if not name.startswith("<")} == {"units"}
    assert (tmp_path / "laptop" / "figures" / f"{FIGURE}.png").read_bytes().startswith(b"\x89PNG")
    assert f"| {FIGURE}-base |" in (tmp_path / "laptop" / "claims.md").read_text()
    # What is there is not computed again: the way ends before the experiments.
    assert not [file for file, _ in run("--out", str(tmp_path)) if file.startswith("experiments/")]
