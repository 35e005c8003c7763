"""The README: its examples run as a reader would run them, and show what they print."""

import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import epinet_eqx as epi
from epinet_eqx import weights
from epinet_eqx.data import IMAGENET_NORMALIZATION
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import squeezenet
from reproduce.aggregate import read_rows
from reproduce.paths import REFERENCE
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


def test_first_example_runs_and_prints_what_is_shown(tmp_path):
    printed = numbers(run(EXAMPLES[0], tmp_path))
    shown = numbers(re.search(r"```text\n(.*?)```", README, re.DOTALL).group(1))
    assert printed.shape == (6,) and np.allclose(printed, shown, atol=0.04)
    (_, known, same), (network, unknown, equal) = printed.reshape(2, 3)
    # What the sentence below the output says.
    assert known > 0.95 and network > 0.9 and unknown < 0.7 and min(same, equal) > 0.95


def pretrained_lines(number):
    """Return five lines of a user who has images and labels."""
    lines = re.findall(r"```python title=[^\n]*\n(.*?)```", README, re.DOTALL)[number]
    (named,) = re.findall(r'pretrained\("(\w+)"\)', lines)
    assert named in weights.PRETRAINED and len([line for line in lines.splitlines() if line.strip()]) <= 5
    return lines


def pretrained_names(network, count):
    """Return what these lines find: a small network and few images in place of the archive and the user's data."""
    images = np.random.default_rng(0).integers(0, 256, (count, 3, 64, 64), dtype=np.uint8)
    loaded = weights.Pretrained(network, IMAGENET_NORMALIZATION)
    return {"pretrained": lambda name: loaded, "images": images, "epi": epi, "jr": jr, "CrossEntropy": CrossEntropy}


def test_lines_for_a_pretrained_network_run():
    names = {**pretrained_names(squeezenet(key=jr.key(0)), 2), "labels": np.array([3, 5])}
    program = pretrained_lines(0).partition("\n")[2].replace("num_steps=1000", "num_steps=1, batch_size=2")
    exec(program, names)
    assert names["enn"](jnp.asarray(names["x"][0]), jnp.zeros(30)).shape == (1000,)


def test_lines_for_a_head_on_a_pretrained_network_run(capsys):
    network = squeezenet(key=jr.key(0))
    names = pretrained_names(network, 40)
    logits = jax.vmap(network)(IMAGENET_NORMALIZATION(names["images"]))
    names["labels"] = np.where(np.arange(40) < 30, np.argmax(logits, axis=1), np.argsort(logits, axis=1)[:, -2])
    exec(pretrained_lines(1), names)
    printed = capsys.readouterr().out
    assert re.search(r"temperature \S+ ± \S+\nalpha 0.2, as given\nmarginal log-loss", printed), printed


def test_what_the_head_does_is_what_was_accepted():
    rows = [row for row in read_rows(REFERENCE / "laptop" / "fig02.csv") if row["network"] == "resnet50"]
    wanted = (
        {"agent": "resnet", "tuned": False},
        {"agent": "resnet", "tuned": True},
        {"agent": "pitman-yor", "alpha": 0.2},
        {"agent": "pitman-yor", "alpha": 0.05},
        {"agent": "epinet", "tuned": False, "num_samples": 1000},
    )
    own = [[row for row in rows if all(row[name] == value for name, value in each.items())] for each in wanted]
    assert all(len(each) == 10 for each in own)
    expected = [[np.mean([row[kind] for row in each]) for kind in ("marginal", "joint")] for each in own]
    (table,) = re.findall(r"\| ResNet-50, 4,000 images.*?\n\n", README, re.DOTALL)
    shown = [[float(cell) for cell in line.split("|")[2:4]] for line in table.strip().splitlines()[2:]]
    np.testing.assert_allclose(shown, expected, atol=0.0051)
    np.testing.assert_allclose(np.array(shown)[:, 0], np.array(expected)[:, 0], atol=0.00051)


def test_citation_is_of_this_version_and_of_the_paper():
    text = (ROOT / "CITATION.cff").read_text()
    (version,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "src/epinet_eqx/__init__.py").read_text(), re.MULTILINE)
    assert f"\nversion: {version}\n" in text
    assert "title: Epistemic Neural Networks\n" in text and "arXiv:2107.08924" in text


def test_it_is_short():
    assert README.count("\n") < 200


def test_there_are_two_commands_and_every_linked_file_exists():
    assert len(re.findall(r"```bash\npython3 -m venv [^\n]*\n```", README)) == len(re.findall("python3 ", README)) == 2
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_minutes_of_sessions_are_those_of_the_index():
    told = dict(re.findall(r"^\| `nox -s (?:reproduce_)?(\w+)` \|.*\| (\d+) minutes \|$", README, re.MULTILINE))
    expected: dict[str, float] = {}
    for entry in REGISTRY.values():
        expected[entry.session] = expected.get(entry.session, 0.0) + entry.minutes_of_session("laptop")
    assert told == {session: f"{minutes:.0f}" for session, minutes in expected.items()}
