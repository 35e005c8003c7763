"""The reproduce tree without its experiments: artifacts, registry, claims, verification, command line."""

import dataclasses
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from reproduce import __main__ as cli
from reproduce import accept, accepted, aggregate, verify
from reproduce.artifact import SESSIONS, TIERS, Tolerance
from reproduce.artifacts._images import banked
from reproduce.claims import Verdict, at_least, at_most, equals
from reproduce.configs.image_paper import Variant
from reproduce.errors import UsageError
from reproduce.files import write_atomically
from reproduce.options import parser
from reproduce.paths import REFERENCE
from reproduce.record import Record, write_csv
from reproduce.registry import REGISTRY, select
from reproduce.style import AGENTS

pytestmark = pytest.mark.once

TREE = pathlib.Path(cli.__file__).parent


def test_artifacts_are_sorted_by_session_order_and_number():
    places = [(SESSIONS.index(own.session), own.order) for own in REGISTRY.values()]
    assert places == sorted(places)
    assert list(REGISTRY)[:8] == ["fig01", "fig03", "fig04", "thm1", "thm2", "thm3", "thm4", "thm5"]
    assert set(REGISTRY) == {path.stem for path in (TREE / "artifacts").glob("[!_]*.py")}


def test_artifacts_share_a_seed_if_and_only_if_they_share_records():
    forms = [form for own in REGISTRY.values() for form in (own, own.from_scratch) if form is not None]
    seeds = {(own.folder, own.seed) for own in forms}
    assert len(seeds) == len({folder for folder, _ in seeds}) == len({seed for _, seed in seeds})


def test_a_figure_of_a_bank_is_trained_from_scratch_at_other_tiers_and_on_other_data():
    scratch = REGISTRY["fig11"]
    own = banked(scratch, config=REGISTRY["thm1"].at_tier("laptop"), minutes=1.0, data="a bank", records="banked")
    assert own.at("laptop") is own and own.note("laptop") == "tier laptop · a bank"
    assert own.at("smoke") is scratch is own.at("laptop", Variant(dataset="digits"))
    assert own.note("smoke") == scratch.note("smoke")
    assert own.tiers == {**scratch.tiers, "laptop": own.at_tier("laptop")}
    assert own.at_tier("laptop", Variant(dataset="digits")).protocol.dataset == "digits"
    assert own.at_tier("paper") == scratch.at_tier("paper")


@pytest.mark.parametrize("name", REGISTRY)
def test_an_artifact_tells_all_about_itself(name):
    own = REGISTRY[name]
    assert own.id == name and own.title and set(own.minutes) == set(own.tiers) <= set(TIERS)
    assert own.note("smoke").startswith("tier smoke · ")
    assert not own.exact or own.note("paper") == own.data
    assert callable(own.load()) and callable(own.draw) and own.source
    assert not own.groups or callable(own.load(own.groups))
    assert not own.plan or callable(own.load(own.plan))


@pytest.mark.parametrize(("name", "tier"), [(name, tier) for name in REGISTRY for tier in REGISTRY[name].tiers])
def test_every_tier_has_units_that_are_frozen(name, tier):
    units = REGISTRY[name].at_tier(tier).units()
    assert units
    for unit in units.values():
        with pytest.raises(dataclasses.FrozenInstanceError):
            unit.anything = 1


def drawing_modules():
    """Return the names of all modules that declare artifacts, draw or judge."""
    return sorted(
        f"reproduce.{path.relative_to(TREE).with_suffix('').as_posix().replace('/', '.')}"
        for folder in ("artifacts", "style")
        for path in (TREE / folder).glob("*.py")
        if path.stem != "__init__"
    )


def test_drawing_and_listing_load_no_jax():
    modules = ", ".join([*drawing_modules(), "reproduce.__main__", "reproduce.paper.__main__"])
    code = f"import sys, {modules}; assert not {{'jax', 'epinet_eqx'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=TREE.parent, check=True)


def test_agents_can_be_told_apart_without_color():
    shared = {"joint", "marginal", "random"}
    looks = [(look.marker, look.linestyle) for name, look in AGENTS.items() if name not in shared]
    assert len(set(looks)) == len(looks)
    assert len({look.color for name, look in AGENTS.items() if name not in shared}) == len(looks)


@pytest.mark.parametrize(
    ("rule", "value", "error", "verdict"),
    [
        (at_least(1.0), 1.3, 0.1, Verdict.HOLDS),
        (at_least(1.0), 1.1, 0.1, Verdict.UNDECIDED),
        (at_least(1.0), 0.7, 0.1, Verdict.FAILS),
        (at_least(1.0), 1.0, 0.0, Verdict.HOLDS),
        (at_least(1.0), 0.999, 0.0, Verdict.FAILS),
        (at_most(1.0), 0.7, 0.1, Verdict.HOLDS),
        (at_most(1.0), 0.9, 0.1, Verdict.UNDECIDED),
        (at_most(1.0), 1.3, 0.1, Verdict.FAILS),
        (at_most(1.0, tolerance=0.5), 1.3, 0.1, Verdict.HOLDS),
        (equals(0.0, tolerance=0.5), 0.2, 0.1, Verdict.HOLDS),
        (equals(0.0, tolerance=0.5), 0.2, 0.2, Verdict.UNDECIDED),
        (equals(0.0, tolerance=0.5), 0.8, 0.1, Verdict.FAILS),
        (equals(0.0, tolerance=0.5), math.nan, 0.1, Verdict.UNDECIDED),
        (at_most(1.0, margin=0.5), 1.1, 0.1, Verdict.EQUAL),
        (at_least(1.0, margin=0.5), 1.1, 0.1, Verdict.EQUAL),
        (at_least(1.0, margin=0.5), 0.9, 0.1, Verdict.EQUAL),
        # A difference that is known to be there is told, however small it is.
        (at_most(1.0, margin=0.5), 1.3, 0.1, Verdict.FAILS),
        (at_most(1.0, margin=0.5), 0.7, 0.1, Verdict.HOLDS),
        (at_most(1.0, margin=0.5), 1.2, 0.2, Verdict.UNDECIDED),
        (at_least(1.0, margin=0.5), 0.8, 0.2, Verdict.UNDECIDED),
        (at_most(1.0, margin=0.5), math.nan, 0.1, Verdict.UNDECIDED),
    ],
)
def test_rules_decide_by_the_interval_of_two_standard_errors(rule, value, error, verdict):
    assert rule(value, error) is verdict


def record(rows, unit="only"):
    return Record(artifact="x", unit=unit, hash="", version="", config={}, seed=0, rows=rows, provenance={})


def test_rows_survive_the_csv(tmp_path):
    rows = [{"agent": "a, b", "tau": 3, "value": 0.1, "exact": True}, {"agent": "c", "extra": math.inf}]
    write_csv(tmp_path / "x.csv", [record(rows[:1]), record(rows[1:], unit="other")])
    expected = [{"unit": "only", **rows[0]}, {"unit": "other", **rows[1]}]
    assert aggregate.read_rows(tmp_path / "x.csv") == expected


@pytest.mark.parametrize(
    ("fresh", "word"),
    [
        ([{"name": "a", "value": 1.0005}], None),
        ([{"name": "a", "value": 1.01}], "row 1, value: 1.01, the reference has 1"),
        ([{"name": "a", "value": math.nan}], "row 1, value: nan"),
        ([{"name": "b", "value": 1.0}], "row 1, name: b, the reference has a"),
        ([{"name": "a", "value": 1.0}] * 2, "2 rows, the reference has 1"),
        ([{"name": "a", "other": 1.0}], "the columns are"),
    ],
)
def test_verification_uses_the_tolerance_of_each_metric(tmp_path, fresh, word):
    write_csv(tmp_path / "accepted.csv", [record([{"name": "a", "value": 1.0}])])
    write_csv(tmp_path / "fresh.csv", [record(fresh)])
    limits = {"value": Tolerance(absolute=1e-3)}
    comparison = verify.compare("x", tmp_path / "fresh.csv", tmp_path / "accepted.csv", limits)
    if word is None:
        assert comparison.differences == ()
        assert comparison.largest == pytest.approx(0.5)
    else:
        assert word in comparison.differences[0]


def test_committed_references_are_those_of_the_manifest():
    manifest = accepted.read_manifest(REFERENCE)
    files = {path.relative_to(REFERENCE).as_posix(): path for path in REFERENCE.rglob("*.csv")}
    assert files
    assert set(manifest) == set(files)
    assert all(manifest[name]["sha256"] == accepted.digest(path) for name, path in files.items())


def test_committed_ledgers_are_those_of_the_committed_numbers():
    ledgers = {path.parent.name: path.read_text() for path in REFERENCE.glob("*/claims.md")}
    assert "replication" in ledgers
    assert ledgers == {tier: accept.accepted_ledger(tier, REFERENCE) for tier in ledgers}


def test_selection_by_id_and_session():
    assert [own.id for own in select(["thm1", "fig01"], tier="smoke")] == ["fig01", "thm1"]
    assert {entry.session for entry in select(session="theory", tier="smoke")} == {"theory"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["list", "--tier", "lap"],
            "`--tier` must be one of smoke, laptop, paper, replication; got lap. Did you mean laptop?",
        ),
        (["run", "--only", "thm"], "Did you mean thm"),
        (
            ["run", "--only", "fig02", "--dataset", "mnist"],
            "cifar100, fashion_mnist, digits, digit_pairs, folder; got mnist.",
        ),
        (
            ["run", "--only", "fig02", "--tier", "paper", "--preset", "x"],
            "`--preset` must be one of paper, released; got x.",
        ),
        (["run", "--only", "fig02", "--preset", "released"], "`--preset` is for `--tier paper`; got `--tier laptop`."),
        (
            ["run", "--only", "thm1", "--dataset", "digits"],
            "`--dataset digits` must go with image figures only; got thm1.",
        ),
        (
            ["verify", "--only", "fig10", "--dataset", "digits"],
            "`verify` is for the default data",
        ),
        (["run", "--only", "fig02", "--accumulate", "0"], "`--accumulate` must be at least 1; got 0."),
        (["run", "--only", "fig02", "--dry-run", "--tflops", "0"], "`--tflops` must be finite and above 0; got 0."),
        (["run", "--only", "fig02", "--dry-run", "--tflops", "inf"], "`--tflops` must be finite and above 0; got inf."),
        (
            ["draw", "--session", "theorie"],
            "cifar, decisions, imagenet, testbed, theory; got theorie. Did you mean theory?",
        ),
    ],
)
def test_unknown_names_are_answered_with_known_ones(arguments, message, capsys):
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("place", ["", "below"])
def test_an_output_folder_that_is_a_file_gets_a_sentence(place, tmp_path, capsys):
    # The write fails, and so did deleting what it had not begun.
    (tmp_path / "file").write_text("x")
    folder = tmp_path / "file" / place
    assert cli.main(["run", "--only", "thm1", "--tier", "smoke", "--quiet", "--out", str(folder)]) == 1
    assert f"{folder}" in (found := capsys.readouterr().err) and "could not be written (Not a directory)" in found


def test_what_is_wrong_in_a_folder_of_the_user_gets_a_sentence(tmp_path, capsys):
    command = ["run", "--only", "rep_conv", "--tier", "replication", "--quiet", "--data-dir", str(tmp_path)]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 1
    assert "`--data-dir` must hold what the artifact reads" in (found := capsys.readouterr().err)
    assert "must hold val_*.npz and train_like.npz" in found


def test_temporary_files_of_killed_runs_are_deleted_a_day_later(tmp_path):
    old, new = tmp_path / ".x.json.12", tmp_path / ".x.json.13"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    write_atomically(tmp_path / "x.json", b"{}")
    assert sorted(os.listdir(tmp_path)) == [new.name, "x.json"]


def chosen(command):
    """Return the ids of the artifacts that a command of the session of CIFAR is about."""
    return [entry.id for entry in cli._choose(parser().parse_args([*command, "--session", "cifar"]))[0]]


@pytest.mark.parametrize("command", ["run", "verify", "restore", "draw"])
def test_a_stand_in_is_computed_on_request_only(command, capsys):
    assert "fig11" not in chosen([command]) and chosen([command, "--only", "fig11"]) == ["fig11"]
    assert ("fig11 is left out, since it would show digit pairs" in capsys.readouterr().out) == (command == "run")
    assert "fig11" in chosen([command, "--tier", "smoke"]) and "fig11" in chosen(["list"])
    assert REGISTRY["fig11"].minutes_of_session("laptop") == 0.0 < REGISTRY["fig11"].minutes_of_session("smoke")


def test_other_data_are_for_the_figures_of_a_session_that_can_show_them():
    assert chosen(["run", "--dataset", "digit_pairs"]) == ["fig10", "fig11"]


def test_unknown_tier_of_an_artifact():
    with pytest.raises(UsageError, match="must be one of smoke"):
        REGISTRY["fig01"].at_tier("huge")


def test_list_tells_what_there_is(capsys, tmp_path):
    assert cli.main(["list", "--session", "theory", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(entry.title in shown for entry in select(session="theory", tier="smoke"))
    assert "0/9" in shown
    assert re.search(r"^thm3 +theory +42 s +CPU ", shown, re.MULTILINE)
    assert "to compute one: python -m reproduce run --only fig01 --tier laptop" in shown


def test_a_time_and_a_machine_are_those_of_the_tier():
    (figure,), (chains,) = select(["fig02"], tier="paper"), select(["testbed_chains"], tier="paper")
    assert [figure.machine(tier) for tier in ("laptop", "paper")] == ["CPU", "accelerators"]
    assert [figure.time(tier) for tier in ("smoke", "laptop", "paper")] == ["30 s", "9 min", "105 h"]
    chains = dataclasses.replace(chains, minutes={"paper": 100})
    assert (chains.time("paper"), chains.time("replication")) == ("100 min", "")


def test_lines_of_the_list_end_where_a_terminal_does(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.main(["list", "--session", "theory", "--out", str(tmp_path)]) == 0
    table = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert len(table) == 9 and max(map(len, table)) == 60 and table[-1].endswith("…")


@pytest.mark.parametrize("command", [[], ["list"], ["run"], ["draw"], ["verify"]])
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, "--help"])
    assert stop.value.code == 0
    words = capsys.readouterr().out
    assert "examples:" in words or "--tier" in words


def test_without_the_package_it_says_how_to_install_it():
    # Without site-packages nothing is installed.
    root = pathlib.Path(__file__).parent.parent
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", "-m", "reproduce", "list"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=root, env=own)
    assert found.returncode == 1 and "`epinet_eqx` must be installed" in found.stderr
    assert "Traceback" not in found.stderr


def test_accepted_numbers_are_drawn_again_where_they_have_a_picture_and_judged_again(capsys, tmp_path, monkeypatch):
    shutil.copy(REFERENCE / "manifest.json", tmp_path)
    (tmp_path / "replication" / "figures").mkdir(parents=True)
    for csv in (REFERENCE / "replication").glob("*.csv"):
        shutil.copy(csv, tmp_path / "replication")
    (tmp_path / "replication" / "figures" / "rep_dyads.png").write_bytes(b"old")
    (tmp_path / "replication" / "claims.md").write_text("old")
    monkeypatch.setattr("reproduce.__main__.REFERENCE", tmp_path)
    assert cli.main(["draw", "--accepted", "--tier", "replication"]) == 0
    picture = tmp_path / "replication" / "figures" / "rep_dyads.png"
    ledger = tmp_path / "replication" / "claims.md"
    assert capsys.readouterr().out == f"{picture}\nledger: {ledger}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert ledger.read_text() == (REFERENCE / "replication" / "claims.md").read_text()
    assert cli.main(["draw", "--accepted", "--tier", "laptop"]) == 0
    assert capsys.readouterr().out == "No picture is accepted at tier laptop.\n"


def test_drawing_without_records_says_how_to_get_them(capsys, tmp_path):
    assert cli.main(["draw", "--only", "thm1", "--out", str(tmp_path)]) == 1
    assert f"run --tier laptop --only thm1 --out {tmp_path}" in capsys.readouterr().err
