"""The documentation: its code runs and prints what is shown, its links lead somewhere, its tables are complete."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
BANKS = ROOT / "reproduce" / "banks"
# The tools of the documentation are not a package.
sys.path.insert(0, str(DOCS))

import hooks  # noqa: E402
import make_pictures  # noqa: E402
import run_pages  # noqa: E402

from reproduce.registry import REGISTRY  # noqa: E402

pytestmark = pytest.mark.once

TEXTS = {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
RUN = [page for page in TEXTS if run_pages.read_blocks(TEXTS[page])]
NUMBER = re.compile(r"-?\d+\.\d+")


def differences(shown, printed):
    """Return what tells two texts apart: words must be equal, decimal numbers close."""
    words = [NUMBER.sub("#", text).split() for text in (shown, printed)]
    if words[0] != words[1]:
        return f"shown {shown!r}, printed {printed!r}"
    numbers = [np.array([float(number) for number in NUMBER.findall(text)]) for text in (shown, printed)]
    close = np.isclose(*numbers, rtol=0.2, atol=0.05)
    return "" if close.all() else f"shown {numbers[0][~close]}, printed {numbers[1][~close]}"


def run(pages, folder):
    """Run pages in a process of their own, as a reader would, and return what their blocks printed."""
    results = folder / "results.json"
    command = [sys.executable, str(DOCS / "run_pages.py"), str(results), str(folder), *pages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(results.read_text())


@pytest.fixture(scope="module")
def shared_results(tmp_path_factory):
    """What the blocks of all pages printed that can share a process, and where they were run."""
    folder = tmp_path_factory.mktemp("pages")
    return run([page for page in RUN if page not in make_pictures.ALONE], folder), folder


@pytest.mark.long
@pytest.mark.parametrize("page", RUN)
def test_page_runs_and_prints_what_it_shows(page, tmp_path, request):
    # Large packages are no part of the test environment; `nox -s tests_large` has them.
    # They are found, not imported: what a page reads of a package may need none of its dependencies.
    if absent := make_pictures.missing(page):
        pytest.skip(f"{', '.join(absent)} not installed")
    if page in make_pictures.ALONE:
        printed, folder = run([page], tmp_path)[page], tmp_path
    else:
        results, folder = request.getfixturevalue("shared_results")
        printed = results[page]
    assert isinstance(printed, list), printed
    for block, output in zip(run_pages.read_blocks(TEXTS[page]), printed, strict=True):
        found = differences(block.shown or "", output)
        assert not found, f"{page}, block before line {block.line + block.code.count(chr(10)) + 2}: {found}"
    for name in re.findall(r'savefig\("([^"]+)"', TEXTS[page]):
        assert (folder / page.removesuffix(".md") / name).stat().st_size > 5_000


def test_differences_are_found():
    assert not differences("loss 0.50 of 10", "loss  0.52 of 10\n")
    assert differences("loss 0.50", "loss 0.70")
    assert differences("10 steps", "11 steps")
    assert differences("loss 0.50", "error 0.50")
    assert differences("", "0.50")


def test_blocks_are_read_with_their_margin_and_what_they_show():
    indented = "a\n\n    ```python\n    x = 1\n    print(x)\n    ```\n\n    ```text\n    1\n    ```\n"
    page = f"{indented}\n```python\ny = 2\n```\n"
    first, second = run_pages.read_blocks(page)
    assert (first.code, first.line, first.shown) == ("x = 1\nprint(x)\n", 3, "1\n")
    assert (second.code, second.shown) == ("y = 2\n", None)
    assert make_pictures.with_printed(page, ["7\n", ""]) == page.replace("    1\n", "    7\n")


def test_every_tutorial_and_concept_has_code_that_runs():
    pages = {page for page in TEXTS if page.startswith(("tutorials/", "concepts/")) and not page.endswith("/index.md")}
    assert len(pages) >= 18 and pages <= set(RUN)


def test_code_that_is_not_run_is_said_to_be_and_compiles():
    titled = re.compile(r"```python (.*?)\n(.*?)```", re.DOTALL)
    found = [(page, match) for page, text in TEXTS.items() for match in titled.findall(text)]
    assert all(title.endswith('(not run here)"') for _, (title, _) in found)
    # The lines of adapters.md are run by tests/test_adapters.py.
    assert {page for page, _ in found} == {"adapters.md", "api/weights.md", "tutorials/other_frameworks.md"}
    for _, (_, code) in found:
        compile(code, "page", "exec")


def test_loops_of_decisions_are_shown_in_under_40_lines():
    blocks = run_pages.read_blocks(TEXTS["tutorials/decisions.md"])
    # One click at a time, comparisons of responses, and designs.
    loops = [block.code.splitlines() for block in blocks if "OnlineLearner.start(" in block.code]
    assert len(loops) == 3 and max(map(len, loops)) < 40


def test_a_pretrained_model_gets_its_epinet_in_under_20_lines():
    (block,) = [block for block in run_pages.read_blocks(TEXTS["tutorials/pretrained.md"]) if "attach(" in block.code]
    assert len([line for line in block.code.splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_files(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", TEXTS[page], flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path = target.partition("#")[0]
        if path == "results.html":
            continue  # Made where the site is built, from the accepted numbers.
        # Accepted figures of real images are copied where the site is built.
        copied = path.startswith("figures/") and path.removeprefix("figures/") in hooks.replication_figures()
        assert target.startswith("https://") or not path or copied or (DOCS / page).parent.joinpath(path).is_file(), (
            target
        )


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    assert sorted(re.findall(r"[\w/]+\.md", navigation)) == sorted(TEXTS)


def test_tools_of_the_documentation_are_not_published():
    excluded = (ROOT / "mkdocs.yml").read_text().partition("\nexclude_docs: |\n")[2].partition("\n\n")[0].split()
    published = {path for path in DOCS.rglob("*.py*") if path.is_file()}
    for pattern in excluded:
        published -= {path for path in published if path.match(pattern) or pattern in path.parts}
    assert excluded and not published


def test_every_package_has_its_api_page():
    packages = {path.parent.name for path in (ROOT / "src" / "epinet_eqx").glob("*/__init__.py")}
    named = {page: re.findall(r"^::: (\S+)$", text, re.MULTILINE) for page, text in TEXTS.items() if "::: " in text}
    expected = {f"api/{package}.md": [f"epinet_eqx.{package}"] for package in packages}
    assert named == {"api/epinet_eqx.md": ["epinet_eqx"], **expected}


def test_pictures_are_small_drawn_by_a_page_and_shown():
    texts = {**TEXTS, make_pictures.README: (ROOT / "README.md").read_text()}
    drawn = {name for text in texts.values() for name in re.findall(r'savefig\("([^"]+)"', text)}
    shown = {name for text in texts.values() for name in re.findall(r"images/([\w.]+)\)", text)}
    pictures = {path.name: path.stat().st_size for path in (DOCS / "images").iterdir()}
    assert drawn == shown == set(pictures)
    assert max(pictures.values()) < 100_000


def test_every_artifact_is_on_the_page_of_the_paper():
    filled = hooks.fill_in_artifacts(TEXTS["reproduce.md"])
    for entry in REGISTRY.values():
        assert f"| `{entry.id}` | {entry.title} |" in filled
        session = "decisions" if entry.id.startswith("dec_") else f"reproduce_{entry.session}"
        assert f"`nox -s {session} -- --only {entry.id}`" in filled
        for claim in entry.claims:
            assert f"| `{claim.id}` |" in filled
    assert "<!-- artifacts" not in filled
    with pytest.raises(ValueError, match="`artifacts` must name a session of the index; got 'nothing'"):
        hooks.fill_in_artifacts("<!-- artifacts: nothing -->")


def test_tables_have_the_tiers_of_their_artifacts_and_titles_count_all_verdicts():
    chosen = [entry for entry in REGISTRY.values() if entry.session == "theory"]
    assert "| smoke | laptop | paper | hardware |" in hooks.artifact_table(chosen)
    with_replication = [entry for entry in REGISTRY.values() if entry.session == "cifar"]
    assert "| replication |" in hooks.artifact_table(with_replication)
    decisions = [entry for entry in REGISTRY.values() if entry.session == "decisions"]
    for chosen in (with_replication, decisions):
        title = hooks.expectations(chosen).splitlines()[0]
        counts = [int(found) for found in re.findall(r"(\d+) (?:hold|do not|are|have)", title)]
        assert sum(counts) == sum(len(entry.claims) for entry in chosen)


def test_measurements_have_the_digits_that_their_error_leaves():
    # A difference with a large error, and one with a small one: the paper tells them alike.
    for name in ("rep_human-ambiguous", "rep_scaling-released"):
        value, error = re.fullmatch(
            r"\+(\S+)\s±\s(\S+)", hooks.fill_in_measurements(f"<!-- measured: {name} -->")
        ).groups()
        assert (
            len(value.partition(".")[2]) == len(error.partition(".")[2])
            and len(error.strip("0.").replace(".", "")) == 2
        )
    # A ratio has no sign.
    assert "+" not in hooks.fill_in_measurements("<!-- measured: testbed_limit-mlp -->")


def test_measurements_of_the_replication_are_filled_in():
    filled = hooks.fill_in_measurements(TEXTS["replication.md"])
    assert "<!--" not in filled
    assert "not accepted yet" not in filled
    assert filled.count("±") > 50
    with pytest.raises(ValueError, match="`measured` must name a claim of the ledger; got 'nothing'"):
        hooks.fill_in_measurements("<!-- measured: nothing -->")


def test_licenses_are_filled_in():
    filled = hooks.fill_in_licenses(TEXTS["licenses.md"])
    assert "<!--" not in filled and "| CIFAR-10H |" in filled and "BY-NC-SA" in filled


def test_the_accuracies_of_public_networks_are_those_of_the_bank():
    networks = json.loads((BANKS / "imagenet" / "bank.json").read_text())["networks"]
    shown = dict(re.findall(r"^\| `(\w+)` \| (\d+\.\d) \|", TEXTS["api/weights.md"], re.MULTILINE))
    assert shown.keys() == networks.keys()
    for name, value in shown.items():
        assert abs(float(value) - 100 * networks[name]["top1"]["val"]) <= 0.0501, name


def test_pages_that_need_a_network_are_found():
    outside = '<script src="https://cdn.example/a.js"></script>'
    assert hooks.loaded_from_elsewhere(f"<p>{outside}</p>") == [outside.removesuffix("</script>")]
    assert hooks.loaded_from_elsewhere('<link rel="stylesheet" href="https://fonts.example/a.css">')
    assert hooks.loaded_from_elsewhere('<img alt="a" src="//example/a.png">')
    assert not hooks.loaded_from_elsewhere('<a href="https://a.example">b</a><script src="a.js"></script>')
    assert not hooks.loaded_from_elsewhere('<link rel="canonical" href="https://a.example">')


def test_bars_in_cells_are_plain():
    page = r"<td><code>E[a \| b]</code></td><p><code>a \| b</code></p>"
    assert hooks.unescape_bars(page) == r"<td><code>E[a | b]</code></td><p><code>a \| b</code></p>"


def test_formulas_become_mathml():
    inline, display = r'<span class="arithmatex">\(a &lt; b\)</span>', r'<div class="arithmatex">\[\frac{a}{b}\]</div>'
    converted = hooks.convert_math(f"{inline} {display}")
    assert converted.count("<math") == 2 and 'display="block"' in converted
    assert "<mo>&#x0003C;</mo>" in converted and "<mfrac>" in converted and "arithmatex" not in converted
    # A phone is narrower than a long formula, which then scrolls by itself.
    long = rf'<span class="arithmatex">\({" + ".join("abcdefghijklm")}\)</span>'
    assert "long-math" in hooks.convert_math(long) and "long-math" not in converted
    assert '<mtext class="typewriter">mlp</mtext>' in hooks.to_mathml(r"\mathtt{mlp}", display=False)
    # Signs and words that browsers would set without a space between them.
    assert "<mi>z</mi><mo>&#x0223C;</mo>" in hooks.to_mathml(r"z \sim P", display=False)
    logarithm = hooks.to_mathml(r"\ln \mathrm{softmax}(f)", display=True)
    assert '<mi>ln</mi><mspace width="0.167em" /><mrow><mi>softmax</mi>' in logarithm
