"""The example of CONTRIBUTING.md: a figure that is added by two files is listed, computed, drawn and judged."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLE = re.findall(r"```python\n# (reproduce/\S+)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the code of `reproduce` with the example in it."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "reproduce", root / "reproduce", ignore=shutil.ignore_patterns("reference", "__pycache__"))
    for path, code in EXAMPLE:
        assert not (root / path).exists()
        (root / path).write_text(code)
    return root


def reproduce(tree, *arguments):
    """Run the command line of the copy and return what it prints."""
    paths = [str(tree), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "reproduce", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_is_one_artifact_and_one_experiment():
    assert [path for path, _ in EXAMPLE] == ["reproduce/artifacts/coin.py", "reproduce/experiments/coin.py"]
    assert sum(len(code.splitlines()) for _, code in EXAMPLE) < 80


def test_it_is_listed_computed_drawn_and_judged(tree):
    assert re.search(r"^coin +theory +6 s ", reproduce(tree, "list", "--tier", "smoke"), re.MULTILINE)
    printed = reproduce(tree, "run", "--only", "coin", "--tier", "smoke", "--quiet")
    assert re.search(r"^holds +coin-slope$", printed, re.MULTILINE)
    out = tree / "out" / "smoke"
    assert (out / "figures" / "coin.png").read_bytes().startswith(b"\x89PNG")
    assert "| coin-slope |" in (out / "claims.md").read_text()
