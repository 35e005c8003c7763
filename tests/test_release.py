"""What a reviewer and a release need beside the code: terms of all data, citation, codecheck, container, checksums."""

import pathlib
import re
import subprocess
import tomllib

import container_steps
import numpy as np
import pytest
import release

import epinet_eqx
from reproduce.configs.image_paper import DATASETS
from reproduce.paths import LICENSES
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
ITEMS = tomllib.loads(LICENSES.read_text(encoding="utf-8"))["item"]


def tracked():
    """Return the files that git knows."""
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("not a git repository")
    return found.stdout.splitlines()


def test_every_item_has_all_that_the_table_shows():
    assert len({item["name"] for item in ITEMS}) == len(ITEMS) >= 10
    for item in ITEMS:
        assert set(item) == {"name", "kind", "terms", "stated", "shipped", "used_by"}
        assert all(item.values()), item["name"]


@pytest.mark.parametrize("name", [*DATASETS, "cifar10h"])
def test_terms_are_told_for_every_data_set_that_can_be_asked_for(name):
    listed = " ".join(f"{item['name']} {item['used_by']}" for item in ITEMS).lower().replace("-", "").replace("`", "")
    assert name.replace("-", "") in listed


def test_artifacts_that_items_name_exist():
    named = {
        word for item in ITEMS for word in re.findall(r"\b(?:(?:rep|dec)_\w+|(?:fig|thm)\d\w*)\b", item["used_by"])
    }
    assert named and named <= set(REGISTRY)


def test_no_data_and_no_weights_but_banks_are_in_the_repository():
    data = {".npz", ".npy", ".safetensors", ".pt", ".pth", ".pkl", ".h5", ".bin", ".tar", ".gz", ".zip", ".parquet"}
    found = [name for name in tracked() if pathlib.Path(name).suffix in data]
    assert [name for name in found if not name.startswith("reproduce/banks/")] == []
    # Outputs and the last layer that makes them: nothing from which an image or a network could be had.
    names = {name for path in found for name in np.load(ROOT / path, allow_pickle=False).files}
    kept = r"(features|logits|weight)(_low|_step)?|bias|format|log_p|y_(augmented|test|train|val)"
    assert [name for name in sorted(names) if not re.fullmatch(kept, name)] == []
    assert sum((ROOT / name).stat().st_size for name in found) < 40e6


def test_the_manifest_of_the_codecheck_is_what_tier_laptop_writes():
    text = (ROOT / "codecheck.yml").read_text(encoding="utf-8")
    assert text.startswith("---\n")
    files = re.findall(r"^  - file: (\S+)$", text, re.MULTILINE)
    figures = {f"out/laptop/figures/{own.id}.pdf" for own in REGISTRY.values() if "laptop" in own.tiers}
    assert set(files) == {"out/laptop/index.html", "out/laptop/claims.md", *figures}
    assert len(re.findall(r"^    comment: \S", text, re.MULTILINE)) == len(files) == len(set(files))


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {epinet_eqx.__version__}\n" in text
    for key in ("cff-version", "message", "title", "type", "abstract", "keywords", "license", "authors", "references"):
        assert re.search(rf"^{key}:", text, re.MULTILINE), key


def test_the_container_copies_files_that_exist_and_installs_the_locked_versions():
    text = (ROOT / "container" / "Containerfile").read_text(encoding="utf-8")
    steps = list(container_steps.instructions(text))
    for name, rest in steps:
        if name == "COPY":
            assert all((ROOT / origin).exists() for origin in rest.split()[:-1]), rest
    assert any("--require-hashes --requirement reproduce/locked.txt" in rest for name, rest in steps if name == "RUN")
    # Nothing is fetched but by pip, and only while it is built.
    assert not re.search(r"curl|wget|git clone|https?://", text)


def test_steps_run_in_an_empty_folder_and_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKED", "yes")
    source, folder = tmp_path / "source", tmp_path / "folder"
    (source / "src").mkdir(parents=True)
    (source / "src" / "a.txt").write_text("a")
    (source / "b.txt").write_text("b")
    folder.mkdir()
    text = (
        "ARG WHERE=here\nFROM x\nENV PLACE=${WHERE}\nCOPY src copied\nCOPY b.txt ./\n"
        'RUN echo "$PLACE $LEAKED." > said && \\\n    ls > files\n'
    )
    done = container_steps.run(text, source=source, folder=folder, environment={"PATH": "/usr/bin:/bin"})
    assert done == ["FROM", "COPY", "COPY", "RUN"]
    assert (folder / "said").read_text() == "here .\n"
    assert (folder / "files").read_text().split() == ["b.txt", "copied", "files", "said"]
    with pytest.raises(subprocess.CalledProcessError):
        container_steps.run("RUN false", source=source, folder=folder, environment={"PATH": "/usr/bin:/bin"})
    with pytest.raises(ValueError, match="got ADD"):
        container_steps.run("ADD a b", source=source, folder=folder, environment={})


@pytest.fixture
def project(tmp_path):
    """A repository that is ready for its release."""
    (tmp_path / "src" / "epinet_eqx").mkdir(parents=True)
    (tmp_path / "src" / "epinet_eqx" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3\n")
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_release_that_is_ready_has_no_obstacles(project):
    assert release.obstacles(project) == []


def test_what_stands_in_the_way_of_a_release_is_told(project):
    subprocess.run(["git", "tag", "v1.2.3"], cwd=project, check=True)
    (project / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    (project / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.2\n")
    assert release.obstacles(project) == [
        "CHANGELOG.md must have a section `## 1.2.3`; rename `## Unreleased`.",
        "CITATION.cff must name version 1.2.3; got 1.2.2.",
        "The version must be a new one; there is a tag v1.2.3.",
        "All changes must be committed.",
    ]


def test_checksums_are_those_of_the_files(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"content")
    release.checksums(tmp_path)
    release.checksums(tmp_path)
    name = tmp_path / "SHA256SUMS"
    assert name.read_text() == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73  a.whl\n"
