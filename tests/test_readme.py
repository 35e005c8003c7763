"""The README: its examples run as a reader would run them, and show what they print."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from reproduce.registry import REGISTRY

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def numbers(text):
    """Return all numbers of a text."""
    return np.array([float(number) for number in re.findall(r"\d+\.\d+", text)])


def run(program, folder):
    """Run a program in a folder of its own and return what it prints."""
    command = [sys.executable, "-c", f"import matplotlib; matplotlib.use('Agg')\n{program}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_moons_runs_and_prints_what_is_shown(tmp_path):
    pytest.importorskip("matplotlib")
    printed = numbers(run(EXAMPLES[0], tmp_path))
    shown = numbers(re.search(r"```text\n(.*?)```", README, re.DOTALL).group(1))
    assert printed.shape == (4,) and np.allclose(printed, shown, atol=0.02)
    assert (tmp_path / "two_moons.png").stat().st_size > 10_000


def test_regression_runs(tmp_path):
    pytest.importorskip("matplotlib")
    run(EXAMPLES[1], tmp_path)
    assert (tmp_path / "regression.png").stat().st_size > 10_000


def test_head_is_calibrated_and_prints_what_is_shown(tmp_path):
    example = next(own for own in EXAMPLES if "pitman_yor.calibrate" in own)
    shown = re.search(r"```text\n(temperature .*?)```", README, re.DOTALL).group(1)
    printed = run(example, tmp_path)
    assert np.allclose(numbers(printed), numbers(shown), rtol=0.02)


def test_citation_is_of_this_version_and_of_the_paper():
    text = (ROOT / "CITATION.cff").read_text()
    (version,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "src/epinet_eqx/__init__.py").read_text(), re.MULTILINE)
    assert f"\nversion: {version}\n" in text
    assert "title: Epistemic Neural Networks\n" in text and "arXiv:2107.08924" in text


def test_there_are_two_commands_and_every_linked_file_exists():
    assert len(re.findall(r"```bash\npython3 -m venv [^\n]*\n```", README)) == len(re.findall("```bash", README)) == 2
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_minutes_of_sessions_are_those_of_the_index():
    told = dict(re.findall(r"^\| `nox -s (?:reproduce_)?(\w+)` \|.*\| (\d+) minutes \|$", README, re.MULTILINE))
    expected: dict[str, float] = {}
    for entry in REGISTRY.values():
        expected[entry.session] = expected.get(entry.session, 0.0) + entry.minutes.get("laptop", 0.0)
    assert told == {session: f"{minutes:.0f}" for session, minutes in expected.items()}
