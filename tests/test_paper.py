"""The reproducibility paper: what it says is generated, what is missing is said to be, and it compiles."""

import dataclasses
import json
import math
import re
import shutil
import subprocess
import sys

import pytest

from reproduce.accepted import digest
from reproduce.aggregate import read_cells
from reproduce.claims import judge
from reproduce.errors import ReproduceError
from reproduce.paper import __main__ as cli
from reproduce.paper import content as paper_content
from reproduce.paper import words
from reproduce.paper.content import content, gather
from reproduce.paths import REFERENCE
from reproduce.registry import CLAIMS, JUDGED_BY, REGISTRY
from reproduce.style import pictures
from reproduce.verify import accept

pytestmark = pytest.mark.once

DEPARTURES = cli.SOURCES.parent / "docs" / "deviations.md"
SOURCES = {path.relative_to(cli.SOURCES).as_posix(): path.read_text() for path in cli.SOURCES.rglob("*.typ")}

# Where a digit may stand in the text: everything else that is a number comes from generated/content.json.
TEXT = r"""
    //[^\n]*                                    # a comment
    | \$[^$]*\$                                 # a formula
    | \b1fr\b | !=\ "0" | (>|==)\ 0                  # the width of a column; whether there is any
    | \b(Section|Appendix|Appendices|Figure|Figures|Theorem|Theorems|Table)\ \w+(\.\d)?(,\ \d+)*(\ and\ \w+)?
    | \bCIFAR-100?\b | @\w+                    # names of data sets and of references
    | \b(fig|tab|thm)\d+[\w-]*                  # ids of artifacts, claims and facts
"""
# Where it may stand in lib.typ, which sets things: lengths, colors, places and levels, too.
LAYOUT = rf"""{TEXT}
    | \d+(\.\d+)?(pt|em|cm|fr|%) | luma\(\d+\) | rgb\("\#[0-9a-f]{{6}}"\)
    | \b(level|colspan):\ \d | (==|-)\ \d\b | slice\(1\) | numbering:\ "1(\.1)?" | paper:\ "a4"
"""
WORDS = (
    "three four five six seven eight nine ten eleven twelve twenty thirty fifty hundred thousand million percent half"
)
TYPED = re.compile(rf"\d|\b({WORDS.replace(' ', '|')}|twice|holds|does not hold|undecided)\b(?!\")", re.IGNORECASE)
# In code, the names of verdicts are keys.
KEYS = re.compile(r"\b(holds|undecided): (\1\b)?|\.(holds|undecided)\b|\"(holds|undecided)\"")


def typed_in(source, allowed=TEXT):
    """Return what looks like a result that was typed in."""
    return [found[0] for found in TYPED.finditer(KEYS.sub("", re.sub(allowed, "", source, flags=re.VERBOSE)))]


def read(reference=REFERENCE):
    """Return what the sources would read, with numbers from a folder."""
    return content(gather(reference), reference=reference, departures=DEPARTURES, version="0")


@pytest.fixture(scope="module")
def tree():
    return read()


@pytest.fixture
def references(tmp_path):
    """A copy of the accepted numbers that a test may change."""
    return shutil.copytree(REFERENCE, tmp_path / "reference")


@pytest.mark.parametrize("name", SOURCES)
def test_no_number_is_typed_in(name):
    assert not typed_in(SOURCES[name], LAYOUT if name == "lib.typ" else TEXT)


@pytest.mark.parametrize("name", REGISTRY)
def test_no_number_is_typed_in_a_caption(name):
    assert not typed_in(REGISTRY[name].caption)


@pytest.mark.parametrize(
    "text",
    [
        "The difference is 0.39 nats.",
        "All 79 claims",
        "is 12% better",
        "three of them",
        "about twice as large",
        "the claim holds",
        "it does not hold",
        "seven percent",
        "(Figure 2) improves by 3",
        '#measured("fig02-base") or 1.9',
    ],
)
def test_typed_numbers_and_verdicts_are_found(text):
    assert typed_in(text)


def test_places_and_lengths_are_not_results():
    assert not typed_in('*Baselines (Figures 6 and 8).* #measured("fig06-het"), Section 6, $x_1 + 2$, CIFAR-10')


def test_every_artifact_and_claim_of_the_index_is_told(tree):
    assert list(tree["artifacts"]) == list(REGISTRY)
    assert set(tree["claims"]) == set(CLAIMS)
    assert int(tree["counts"]["all"]) == len(CLAIMS)
    assert sum(int(tree["counts"][key]) for key in tree["verdicts"]) == len(CLAIMS)


def test_claims_of_the_paper_and_beyond_are_all_of_them(tree):
    paper, beyond = (tree["parts"][part] for part in ("paper", "beyond"))
    assert all(int(paper[key]) + int(beyond[key]) == int(tree["counts"][key]) for key in tree["counts"])
    assert int(beyond["all"]) == sum(name.startswith(("rep_", "dec_", "testbed_")) for name in CLAIMS)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"holds": 44}, "44 hold"),
        ({"holds": 1, "fails": 1}, "1 holds and 1 does not hold"),
        (
            {"fails": 2, "undecided": 1, "missing": 3},
            "2 do not hold, 1 is undecided and 3 have no accepted numbers yet",
        ),
    ],
)
def test_verdicts_are_counted_in_a_sentence(counts, text):
    lines = [{"verdict": verdict} for verdict, count in counts.items() for _ in range(count)]
    assert paper_content._tally(paper_content._counts(lines)) == text


def test_costs_tell_what_tier_paper_would_take(tree):
    costs = {name: tree["artifacts"][name]["cost"] for name in ("fig02", "thm3", "rep_bank", "fig12")}
    for name, machine in (("fig02", "accelerators"), ("thm3", "CPU")):
        assert costs[name]["full"] == f"{REGISTRY[name].time('paper')}, {machine}"
    assert costs["rep_bank"]["full"] == ""
    assert costs["fig12"]["shared"] == "fig02 and 5 more"


def test_scores_leave_out_only_what_another_table_has(tree):
    agents = {name: [row[0] for row in scores["rows"]] for name, scores in tree["scores"].items()}
    assert {"fig05", "fig06", "fig09", "fig10"} <= set(agents) and "fig02" not in agents
    # An ensemble is told by its size, and chains of several lengths on several problems are one agent.
    assert {"ensemble of 10", "ensemble+ of 10"} <= set(agents["fig05"])
    assert agents["fig05"].count("sgmcmc") == 1


def test_names_in_the_text_are_those_of_claims_and_facts(tree):
    text = "\n".join(SOURCES.values())
    named = set(re.findall(r'#?(?:measured|verdict|judged|by-verdict)\("([^"]+)"', text))
    named |= set(re.findall(r"data\.claims\.([\w-]+)\.", text))
    assert len(named) > 40 and named <= set(CLAIMS)
    assert set(re.findall(r'fact\("([^"]+)"\)', text)) == set(tree["facts"])
    assert set(re.findall(r"#include \"([^\"]+)\"", text)) == {name for name in SOURCES if "/" in name}


def test_numbers_are_those_of_the_accepted_csv(tree):
    shown = {found.entry.id: found for found in gather(REFERENCE)}
    for name in ("thm4-slope", "fig01-marginals"):
        line = judge(CLAIMS[name], shown[JUDGED_BY[name].id].rows)
        told = words.measured(line.measurement.value, line.measurement.standard_error)
        assert tree["claims"][name]["measured"] == told
        assert tree["verdicts"][tree["claims"][name]["verdict"]] == line.verdict.value


def test_another_number_in_a_csv_is_another_number_in_the_paper(references, tree):
    path = references / tree["artifacts"]["thm1"]["tier"] / "thm1.csv"
    text = path.read_text()
    columns, _ = read_cells(path)
    lines = text.splitlines()
    place = columns.index("exact")
    for number, line in enumerate(lines):
        cells = line.split(",")
        if "marginal" in cells:
            cells[place] = "0.99"
            lines[number] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ReproduceError, match=r"thm1.csv is not the one in its manifest"):
        read(references)
    manifest = json.loads((references / "manifest.json").read_text())
    manifest[f"{path.parent.name}/thm1.csv"]["sha256"] = digest(path)
    (references / "manifest.json").write_text(json.dumps(manifest))
    changed = read(references)
    assert tree["claims"]["thm1-no-better"]["verdict"] == "holds"
    assert changed["claims"]["thm1-no-better"]["verdict"] == "fails"
    assert changed["digest"] != tree["digest"]
    assert int(changed["counts"]["fails"]) > int(tree["counts"]["fails"])


def test_the_best_tier_is_shown_and_a_missing_artifact_is_said_to_be(references):
    manifest = json.loads((references / "manifest.json").read_text())
    shutil.copytree(references / "smoke", references / "paper", dirs_exist_ok=True)
    for path in (references / "smoke").glob("*.csv"):
        manifest[f"paper/{path.name}"] = manifest[f"smoke/{path.name}"]
    (references / "manifest.json").write_text(json.dumps(manifest))
    for path in references.glob("*/fig10.csv"):
        path.unlink()
    changed = read(references)
    assert changed["artifacts"]["thm1"]["tier"] == "paper"
    missing = changed["artifacts"]["fig10"]
    assert missing["tier"] is None and missing["figure"] is None
    assert missing["counts"]["missing"] == missing["counts"]["all"] == str(len(missing["claims"]))
    assert {changed["claims"][name]["verdict"] for name in missing["claims"]} == {"missing"}
    assert changed["claims"]["fig10-base"]["measured"] == "no accepted number yet"


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.3923, 0.0322, "0.392 ± 0.032"),
        (-1.96, 0.0954, "-1.960 ± 0.095"),
        (73.42, 0.0, "73.4"),
        (1200.0, 37.0, "1200 ± 37"),
        (-0.0001, 0.2, "0.00 ± 0.20"),
        (8.497e-18, 0.0, "8.5 x 10⁻¹⁸"),
        (2e-8, 3.4e-9, "(2.00 ± 0.34) x 10⁻⁸"),
        (10000.0, 0.0, "10,000"),
        (math.nan, 0.1, "not measured"),
        (0.5, math.nan, "0.5 ± unknown"),
        (math.inf, 0.0, "not finite"),
    ],
)
def test_numbers_have_the_digits_that_their_error_leaves(value, error, text):
    proper = text.replace("-", "\N{MINUS SIGN}").replace("x", "\N{MULTIPLICATION SIGN}")
    assert words.measured(value, error) == proper


def test_times_are_told_as_people_do():
    assert [words.duration(seconds) for seconds in (7.4, 119, 442.1, 36000)] == ["7 s", "119 s", "7 min", "10.0 h"]


def test_markdown_becomes_runs():
    page = "## A title\n\n| a | b |\n|---|---|\n| the *mean*, `x \\| y` | 2*3 |\n\ntext\n"
    (table,) = words.tables(page)
    assert (table["title"], table["columns"]) == ("A title", ["a", "b"])
    (first, second) = table["rows"][0]
    assert [(run["kind"], run["text"]) for run in first] == [
        ("text", "the "),
        ("emph", "mean"),
        ("text", ", "),
        ("code", "x | y"),
    ]
    assert "".join(run["text"] for run in second) == "2*3"


def test_departures_lose_no_word_and_name_claims_that_exist(tree):
    page = DEPARTURES.read_text()
    rows = [line for line in page.splitlines() if line.startswith("|") and not line.startswith("|---")]
    tables = tree["departures"]
    assert sum(len(table["rows"]) + 1 for table in tables) == len(rows)
    runs = [run for table in tables for row in table["rows"] for cell in row for run in cell]
    letters = "".join(run["text"] for run in runs).replace(" ", "")
    body = "".join(row for row in rows if row.split("|")[1].strip() not in ("where",))
    assert sorted(letters.replace("|", "")) == sorted(re.sub(r"[|`\\ ]|(?<![\w*])\*(?=\w)|(?<=\w)\*(?!\w)", "", body))
    code = {run["text"] for run in runs if run["kind"] == "code"}
    named = {text for text in code if re.fullmatch(r"(fig|thm|testbed_)\w*-[\w-]+", text)}
    assert len(named) >= 8 and named <= set(CLAIMS)


def test_the_numbers_of_the_departures_are_right():
    # The standard deviation of a normal variable that is cut off at two standard deviations, and Glorot's.
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    truncated = math.sqrt(1 - 4 * density / math.erf(math.sqrt(2))) / math.sqrt(50)
    glorot = math.sqrt(2 / (50 + 30000))
    assert f"standard deviation is {truncated:.3f}, Glorot's is {glorot:.3f}" in DEPARTURES.read_text()


def test_an_artifact_that_is_added_appears(references, monkeypatch):
    # As a later session would: an artifact and an accepted CSV.
    entry = dataclasses.replace(REGISTRY["fig10"], id="rep_new", session="later", claims=())
    monkeypatch.setitem(REGISTRY, "rep_new", entry)
    target = references / "replication" / "rep_new.csv"
    target.parent.mkdir(exist_ok=True)

    class Fresh:
        tier = "replication"

        def csv(self, artifact):
            return references / "laptop" / "fig10.csv"

        def figure(self, artifact, kind):
            return references / "none.png"

    # A long run may have been continued on another machine: what differs is then a list.
    versions = [{"jax": "0.10.2", "numpy": "2.4"}, {"jax": "0.10.2", "numpy": "2.3"}, {"jax": "0.12.0"}]
    origin = {"seconds": 100.0, "units": 3, "cpus": [2, 4], "device": "cpu", "versions": versions}
    accept([entry], Fresh(), references, {"rep_new": origin})
    told = read(references)["artifacts"]["rep_new"]
    assert (told["tier"], told["session"]) == ("replication", "later")
    assert (told["cost"]["time"], told["cost"]["runs"]) == ("100 s", "3")
    assert (told["cost"]["machine"], told["cost"]["jax"]) == ("cpu, 2, 4 cores", "0.10.2, 0.12.0")


def test_building_loads_no_jax():
    code = "import sys, reproduce.paper.__main__; assert not {'jax', 'epinet_eqx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=cli.SOURCES.parent, check=True)


@pytest.mark.long
def test_the_paper_is_built(tmp_path, capsys):
    pytest.importorskip("typst")
    assert cli.main(["--out", str(tmp_path)]) == 0
    pdf = tmp_path / "paper" / "epinet_eqx.pdf"
    assert pdf.read_bytes().startswith(b"%PDF") and pdf.stat().st_size > 1_000_000
    assert capsys.readouterr().out.strip() == str(pdf)


def test_the_paper_compiles_with_and_without_numbers(tmp_path, references, monkeypatch):
    pytest.importorskip("typst")
    drawn = []

    def draw_once(figure, *kinds, **options):
        # One picture in place of all: drawing them takes far longer than all the rest.
        drawn.append(drawn[0] if drawn else pictures(figure, *kinds, **options))
        return drawn[0]

    monkeypatch.setattr(cli, "pictures", draw_once)
    cli.prepare(tmp_path / "full")
    assert len(drawn) == sum(shown.accepted is not None for shown in gather(REFERENCE))
    assert cli.compile_paper(tmp_path / "full").startswith(b"%PDF")
    # With no accepted numbers at all, every artifact is missing, and the paper still compiles.
    shutil.rmtree(references)
    references.mkdir()
    (references / "manifest.json").write_text("{}")
    cli.prepare(tmp_path / "empty", references)
    assert cli.compile_paper(tmp_path / "empty").startswith(b"%PDF")


def test_what_typst_refuses_is_told(tmp_path):
    pytest.importorskip("typst")
    (tmp_path / "main.typ").write_text("#unknown-function()")
    with pytest.raises(ReproduceError, match=r"must compile; Typst says: .*unknown-function"):
        cli.compile_paper(tmp_path)
