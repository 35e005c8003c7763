"""The reproducibility paper: what it says is generated, what is missing is said to be, and it compiles."""

import dataclasses
import json
import math
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from reproduce.accept import accept
from reproduce.accepted import digest, read_manifest
from reproduce.aggregate import read_cells
from reproduce.claims import judge
from reproduce.errors import ReproduceError
from reproduce.paper import __main__ as cli
from reproduce.paper import content as paper_content
from reproduce.paper import rule_history, words
from reproduce.paper.content import content, gather
from reproduce.paper.originals import originals
from reproduce.paper.origins import stood_before
from reproduce.paths import REFERENCE
from reproduce.registry import CLAIMS, JUDGED_BY, REGISTRY
from reproduce.style import pictures

pytestmark = pytest.mark.once

SOURCES = {path.relative_to(cli.SOURCES).as_posix(): path.read_text() for path in cli.SOURCES.rglob("*.typ")}

# Where a digit may stand in the text: everything else that is a number comes from generated/content.json.
TEXT = r"""
    //[^\n]*                                    # a comment
    | \$[^$]*\$                                 # a formula
    | \b\d+(\.\d+)?fr\b | \bgap:\ \d+(\.\d+)?pt     # the width of a column; space around a row
    | \bmost:\ \d+%                            # how large a picture may be
    | !=\ "0" | (>|==)\ 0                         # whether there is any
    | \b(Section|Appendix|Appendices|Figure|Figures|Theorem|Theorems|Table)\ \w+(\.\d)?(,\ \d+)*(\ and\ \w+)?
    | \bCIFAR-100?\b | @\w+                    # names of data sets and of references
    | \b(fig|tab|thm)\d+[\w-]*                  # ids of artifacts, claims and facts
"""
# Where it may stand in lib.typ, which sets things: lengths, colors, places and levels, too.
LAYOUT = rf"""{TEXT}
    | \d+(\.\d+)?(pt|em|cm|fr|%) | luma\(\d+\) | rgb\("\#[0-9a-f]{{6}}"\)
    | \b(level|colspan):\ \d | (==|-)\ \d\b | slice\(1\) | numbering:\ "[1A](\.1)?" | paper:\ "a4"
    | update\(0\)
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
    return content(gather(reference), reference=reference, departures=cli.DEPARTURES, sources=cli.SOURCES, version="0")


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


def test_each_claim_is_counted_once_by_evidence_and_by_whose_it_is(tree):
    counts = [kind for part in tree["parts"].values() for kind in part.values()]
    for key in tree["counts"]:
        assert sum(int(count[key]) for count in counts) == int(tree["counts"][key])
    assert tree["parts"]["theory"]["paper"]["fails"] == "0"
    # What was measured on digits is not counted with ImageNet and CIFAR-10.
    for claim in tree["claims"].values():
        artifact = tree["artifacts"][claim["artifact"]]
        if claim["part"] in ("images", "small"):
            assert (claim["part"] == "small") == (artifact["tier"] != "paper" and "instead of" in artifact["data"])
    ours = {name for name, claim in tree["claims"].items() if claim["ours"]}
    assert {"thm2-tight", "thm5-urn", "rep_scaling-strict", "dec_active-bald"} <= ours
    assert not {"thm2-bound", "fig02-ensemble", "rep_scaling-released", "dec_thesis-joint"} & ours


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


@pytest.mark.parametrize(
    ("value", "error", "standing", "size"),
    [
        (-0.6, 0.1, "less", "0.60 ± 0.10"),
        (0.6, 0.1, "more", "0.60 ± 0.10"),
        (-0.15, 0.1, "level", "0.15 ± 0.10"),
        (-0.5, 0.0, "less", "0.5"),
        (math.nan, 0.0, "unknown", "not measured"),
        (0.5, math.nan, "unknown", "0.5 ± unknown"),
    ],
)
def test_who_is_ahead_is_told_without_a_sign(value, error, standing, size):
    assert words.standing(value, error) == standing
    assert words.size(value, error) == size


def test_who_is_ahead_does_not_depend_on_the_verdict(tree):
    # The paper has `sgmcmc` in front: the claim fails because the epinet is.
    claim = tree["claims"]["fig05-sgmcmc"]
    assert (claim["verdict"], claim["standing"]) in {("fails", "less"), ("holds", "more"), ("undecided", "level")}


def test_questions_name_claims_that_exist(tree):
    for question in tree["questions"]:
        assert set(question) <= {"words", "place", "claims", "against"}
        assert question["claims"] and set(question["claims"]) <= set(CLAIMS)
        assert set(question.get("against", {})) <= set(question["claims"])
    assert len(tree["questions"]) > 10


def test_published_numbers_stand_beside_ours(tree):
    quoted = tomllib.loads((cli.SOURCES / "originals.toml").read_text(encoding="utf-8"))["number"]
    found = {entry["what"]: entry for entry in tree["originals"]}
    assert len(found) == len(quoted)
    for entry in quoted:
        assert all(entry[name] for name in ("theirs", "setting", "source"))
        assert found[entry["what"]]["theirs"] == entry["theirs"]
        assert re.search(r"\d", found[entry["what"]]["ours"])
    half = next(entry for entry in quoted if "claim" in entry["ours"])
    assert found[half["what"]]["ours"] == tree["claims"][half["ours"]["claim"]]["measured"]


def test_a_published_number_is_divided_and_related_as_it_says(tmp_path):
    row = {"input_dim": 2, "data_ratio": 1, "temperature": 0.1}
    rows = [
        {**row, "agent": agent, "problem": p, "joint": joint}
        for agent, joint in (("a", 1.0), ("b", 4.0))
        for p in (0, 1)
    ]
    common = 'setting = "s"\nsource = "t"\ntheirs = "1"'
    ours = 'artifact = "x", metric = "joint", means = "problems", rows = { agent = "a" }'
    of_b = 'over = { agent = "b" }'
    path = tmp_path / "originals.toml"
    path.write_text(
        f'[[number]]\nwhat = "ratio"\n{common}\nours = {{ {ours}, {of_b} }}\n'
        f'[[number]]\nwhat = "share"\n{common}\nours = {{ {ours}, per = 10 }}\n'
        f'[[number]]\nwhat = "elsewhere"\n{common}\nours = {{ {ours}, {of_b}, over_artifact = "z" }}\n'
        f'[[number]]\nwhat = "missing"\n{common}\nours = {{ {ours.replace(chr(34) + "x", chr(34) + "y")} }}\n'
    )
    told = {entry["what"]: entry["ours"] for entry in originals(path, {"x": rows})}
    assert told == {"ratio": "0.25", "share": "0.1"}
    others = [{**entry, "joint": 2 * entry["joint"]} for entry in rows]
    told = {entry["what"]: entry["ours"] for entry in originals(path, {"x": rows, "z": others})}
    assert told == {"ratio": "0.25", "share": "0.1", "elsewhere": "0.125"}


def test_all_computing_is_added_up(tree):
    manifest = read_manifest(REFERENCE)
    total = sum(origin.get("seconds", 0.0) for origin in manifest.values())
    assert tree["compute"]["all"] == {
        "time": words.duration(total),
        "runs": words.number(sum(origin.get("units", 0) for origin in manifest.values())),
    }
    theory = next(row for row in tree["compute"]["sessions"] if row["session"] == "theory")
    own = [origin for name, origin in manifest.items() if re.match(r"smoke/(fig0[134]|thm\d)\.csv", name)]
    assert theory["tiers"]["smoke"]["time"] == words.duration(sum(origin.get("seconds", 0.0) for origin in own))


def test_a_rule_that_was_changed_with_its_numbers_known_was_not_set_before_them(tmp_path):
    claim = CLAIMS["thm2-bound"]
    for rule, expected in ((str(claim.rule), "before"), ("at most 1 (2 s.e.)", "after")):
        recorded = {"thm2-bound": {"rule": rule, "stood": "before"}}
        (tmp_path / "rules.json").write_text(json.dumps(recorded))
        assert stood_before(tmp_path) == {"thm2-bound": expected}


def test_the_history_says_what_is_recorded():
    command = ["git", "rev-parse", "--is-shallow-repository"]
    whole = subprocess.run(command, cwd=cli.SOURCES, capture_output=True, text=True, check=False)
    if whole.stdout.strip() != "false":
        pytest.skip("the history is not here")
    recorded = json.loads((REFERENCE / "rules.json").read_text())
    known = {}
    for name in ("rep_scaling-bar", "rep_scaling-strict"):
        assert rule_history.stood(name, known) == recorded[name]["stood"]
    assert recorded["rep_scaling-bar"]["stood"] != recorded["rep_scaling-strict"]["stood"]


def test_rules_are_recorded_for_claims_that_exist():
    recorded = json.loads((REFERENCE / "rules.json").read_text())
    assert len(recorded) > 100
    assert {entry["stood"] for entry in recorded.values()} <= {"before", "between", "with", "after"}


def test_names_in_the_text_are_those_of_claims_and_facts(tree):
    text = "\n".join(SOURCES.values())
    named = set(re.findall(r'#?(?:measured|verdict|judged|by-verdict|versus)\("([^"]+)"', text))
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
    page = cli.DEPARTURES.read_text()
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
    assert f"standard deviation is {truncated:.3f}, Glorot's is {glorot:.3f}" in cli.DEPARTURES.read_text()


def test_an_artifact_that_is_added_appears(references, monkeypatch):
    # As a later session would: an artifact and an accepted CSV.
    entry = dataclasses.replace(REGISTRY["fig11"], id="rep_new", session="later", claims=())
    monkeypatch.setitem(REGISTRY, "rep_new", entry)
    target = references / "replication" / "rep_new.csv"
    target.parent.mkdir(exist_ok=True)

    class Fresh:
        tier = "replication"

        def csv(self, artifact):
            return references / "laptop" / "fig11.csv"

        def figure(self, artifact, kind):
            return references / "none.png"

    accept([entry], Fresh(), references, {"rep_new": {"seconds": 100.0, "units": 3}})
    told = read(references)["artifacts"]["rep_new"]
    assert (told["tier"], told["session"]) == ("replication", "later")


def test_building_loads_no_jax():
    code = "import sys, reproduce.paper.__main__; assert not {'jax', 'epinet_eqx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=cli.SOURCES.parent, check=True)


@pytest.mark.long
def test_the_paper_is_built(tmp_path, capsys):
    pytest.importorskip("typst")
    assert cli.main(["--out", str(tmp_path)]) == 0
    pdf = tmp_path / "paper" / "epinet_eqx.pdf"
    assert pdf.read_bytes().startswith(b"%PDF") and pdf.stat().st_size > 1_000_000
    # Under twenty pages, as the reader is promised.
    assert 10 < len(re.findall(rb"/Type ?/Page\b", pdf.read_bytes())) < 20
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
