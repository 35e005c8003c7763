"""The exact versions of the `reproduce` sessions."""

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
LOCKED = (ROOT / "reproduce" / "locked.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_locked() -> list[Requirement]:
    """Return the pinned packages; one that differs between Pythons has several lines."""
    return [Requirement(line.rstrip(" \\")) for line in LOCKED.splitlines() if not line.startswith("    --hash")]


def wanted() -> list[Requirement]:
    """Return what the `reproduce` sessions need, by pyproject.toml."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    names = ("plot", "data", "train", "mcmc", "dask")
    texts = [*project["dependencies"], *(text for name in names for text in extras[name])]
    return [Requirement(text) for text in [*texts, *PROJECT["dependency-groups"]["paper"]]]


def test_every_package_is_pinned_with_its_hashes():
    for requirement in read_locked():
        assert re.fullmatch(r"==[\w.+!-]+", str(requirement.specifier)), requirement
    blocks = re.split(r"^(?=\S)", LOCKED, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
    assert "http" not in LOCKED


def test_pins_meet_the_requirements_of_the_project():
    pins: dict[str, list[Requirement]] = {}
    for pin in read_locked():
        pins.setdefault(canonicalize_name(pin.name), []).append(pin)
    for requirement in wanted():
        found = pins.get(canonicalize_name(requirement.name), [])
        assert found, f"{requirement} is not locked: run `nox -s lock`"
        for pin in found:
            (version,) = [specifier.version for specifier in pin.specifier]
            assert requirement.specifier.contains(version), f"{pin} does not meet {requirement}: run `nox -s lock`"
