"""The two ways through the house in docs/design.md are those that calls take."""

import inspect
import pathlib
import re
import sys

import jax.numpy as jnp
import jax.random as jr
import pytest

import epinet_eqx as epi
import epinet_eqx.data  # What is only imported on the way is not a part of it.
from epinet_eqx import metrics
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once

PACKAGE = pathlib.Path(epi.__file__).parent
SECTION = (PACKAGE.parents[1] / "docs" / "design.md").read_text().split("## Two ways through the house")[1]
PICTURE, REST = SECTION.split("```")[1:3]
MODEL = re.findall(r"^- (\S+)", PICTURE, flags=re.MULTILINE)
TRUSTED = re.findall(r"`((?:\w+/)?_\w+)`", REST.split("## ")[0])


def listed(column):
    """Return the files in the left or right column of the picture."""
    lines = [line for line in PICTURE.splitlines() if line.startswith("  ")]
    texts = [line[:60] if column == "left" else line[60:] for line in lines]
    return [found[1] for text in texts if (found := re.match(r"\s*(\S+\.py)", text))]


def trusted(file):
    """Whether the page says that a reader may pass over a file."""
    return file.endswith("__init__.py") or any(re.search(rf"(^|/){name}\.py$", file) for name in TRUSTED)


def of_model(file):
    """Whether a file belongs to the model."""
    return any(file.startswith(name) for name in MODEL)


def files_called(call):
    """Return the files whose functions a call runs, without checks of arguments, class and module bodies."""
    found = {}

    def note(frame, event, _):
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.lstrip("_").startswith("check")
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and is_function:
            found.setdefault(str(pathlib.Path(code.co_filename).relative_to(PACKAGE)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [file for file in found if not trusted(file) and not of_model(file)]


@pytest.fixture
def example(getkey):
    x = jr.normal(getkey(), (20, 2))
    enn = epi.attach(MLP(2, 2, (8,), feature_layers=(0, -1), key=getkey()), example=x[0], index_dim=3, key=getkey())
    return enn, x, (x[:, 0] > 0).astype(jnp.int32)


@pytest.mark.parametrize("column", ["left", "right"])
def test_a_way_passes_the_files_of_the_picture_and_at_most_eight(column, example, getkey):
    enn, x, y = example
    if column == "left":
        found = files_called(
            lambda: epi.fit(enn, (x, y), CrossEntropy(), num_steps=2, batch_size=5, progress=False, key=getkey())
        )
    else:
        draws = epi.Draws.sample(enn.index, 3, key=getkey())
        found = files_called(lambda: str(metrics.dyadic_log_loss(enn, x, y, draws)))
    assert sorted(found) == sorted(listed(column)), set(found) ^ set(listed(column))
    assert len(found) <= 8
