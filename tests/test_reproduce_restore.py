"""Accepted numbers become records again, whole or in part, and only where they are of the same experiment."""

import json
from dataclasses import replace

import pytest

from reproduce import __main__ as cli
from reproduce import accept, accepted, results, runner, verify
from reproduce.errors import ReproduceError
from reproduce.inputs import Inputs
from reproduce.paths import Output
from reproduce.record import Records
from reproduce.registry import REGISTRY
from reproduce.restore import restore

ENTRY = REGISTRY["thm1"]


@pytest.fixture
def reference(tmp_path):
    """A reference of one of the two units of an artifact, and the records that it was made from."""
    output = Output(root=tmp_path / "first", tier="smoke")
    records = Records(output)
    first, _ = records.jobs(ENTRY)
    (computed,) = runner.compute([first], inputs=Inputs(), output=output)
    records.add(computed)
    results.collect(ENTRY, records, partial=True)
    folder = tmp_path / "reference"
    accept.accept([ENTRY], output, folder, {"thm1": results.origin(ENTRY, records)})
    return folder, first.unit, computed


@pytest.mark.once
def test_a_part_is_restored_and_nothing_else(reference, tmp_path):
    folder, unit, before = reference
    output = Output(root=tmp_path / "second", tier="smoke")
    assert restore(ENTRY, Records(output), folder) == 1
    records = Records(output)
    assert restore(ENTRY, records, folder) == 0
    (after,) = records.of(ENTRY)
    assert after.unit == unit
    assert after.provenance["commit"] == before.provenance["commit"]
    results.collect(ENTRY, records, partial=True)
    assert output.csv("thm1").read_bytes() == (folder / "smoke" / "thm1.csv").read_bytes()
    with pytest.raises(ReproduceError, match="thm1 has 1 of its 2 units"):
        results.collect(ENTRY, records)


@pytest.mark.once
def test_a_part_is_neither_verified_against_nor_shown_as_the_whole(reference):
    folder, _, _ = reference
    comparison = verify.verify(ENTRY, Output(root=folder, tier="smoke"), folder)
    assert comparison.differences == ("the reference smoke/thm1.csv is partial: 1 of 2 units",)
    assert accepted.best_accepted("thm1", folder) is None


@pytest.mark.once
def test_numbers_of_another_experiment_are_not_restored(reference, tmp_path):
    folder, _, _ = reference
    output = Output(root=tmp_path / "second", tier="smoke")
    manifest = accepted.read_manifest(folder)
    manifest["smoke/thm1.csv"]["fingerprint"] = "other"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ReproduceError, match="not known to be of this configuration"):
        restore(ENTRY, Records(output), folder)
    (folder / "smoke" / "thm1.csv").write_text("unit,value\n")
    with pytest.raises(ReproduceError, match="must be what its manifest says; its checksum is another one"):
        restore(ENTRY, Records(output), folder)
    (folder / "smoke" / "thm1.csv").unlink()
    with pytest.raises(ReproduceError, match="thm1 must have accepted numbers at tier smoke; there is no "):
        restore(ENTRY, Records(output), folder)
    assert not any(output.root.rglob("*.json"))


def test_a_fingerprint_is_of_names_and_hashes(tmp_path):
    first, second = Records(Output(root=tmp_path, tier="smoke")).jobs(ENTRY)
    assert results.fingerprint([first, second]) == results.fingerprint([second, first])
    assert results.fingerprint([first]) != results.fingerprint([replace(first, hash="0")])


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Return a function that makes all records of a run, and the reference that was accepted from another code."""

    def run(folder, value=1.0, **about):
        records = Records(Output(root=tmp_path / folder, tier="smoke"))
        origin = {"seconds": 1.0, "commit": "a" * 40, "instructions": "i", "cpus": 2, "versions": {"jax": "1"}, **about}
        for job in records.jobs(ENTRY):
            records.add(job.record([{"value": value}], origin))
        return records

    folder, records = tmp_path / "reference", run("accepted")
    results.collect(ENTRY, records)
    accept.accept([ENTRY], records.output, folder, {"thm1": results.origin(ENTRY, records)})
    manifest = accepted.read_manifest(folder)
    manifest["smoke/thm1.csv"]["fingerprint"] = "of other code"
    accepted.write_manifest(folder, manifest)
    monkeypatch.setattr(cli, "REFERENCE", folder)
    return run, folder


def confirm(records):
    """Confirm by the command line and return its exit code."""
    return cli.main(["verify", "--confirm", "--only", "thm1", "--tier", "smoke", "--out", str(records.output.root)])


@pytest.mark.once
def test_accepted_numbers_that_a_run_confirmed_are_restored(fresh, tmp_path, capsys):
    run, folder = fresh
    elsewhere = Records(Output(root=tmp_path / "elsewhere", tier="smoke"))
    with pytest.raises(ReproduceError, match="not known to be of this .* verify --tier smoke --only thm1 --confirm"):
        restore(ENTRY, elsewhere, folder)
    before = accepted.read_manifest(folder)["smoke/thm1.csv"]
    assert confirm(run("fresh", commit="b" * 40)) == 0
    assert "thm1: confirmed for the code of commit bbbbbbbbbbbb\n" in capsys.readouterr().out
    after = accepted.read_manifest(folder)["smoke/thm1.csv"]
    noted = after.pop("confirmed")
    assert after == before
    assert noted.pop("date").startswith("20")
    assert noted == {
        "largest": 0.0,
        "fingerprint": results.fingerprint(elsewhere.jobs(ENTRY)),
        "commit": "b" * 40,
        "instructions": "i",
        "cpus": 2,
        "versions": {"jax": "1"},
        "seconds": 2.0,
    }
    assert restore(ENTRY, elsewhere, folder) == 2
    # What was restored says where the numbers come from, and confirms nothing.
    assert elsewhere.of(ENTRY)[0].provenance["commit"] == "a" * 40
    assert "confirmed" not in elsewhere.of(ENTRY)[0].provenance
    assert confirm(Records(elsewhere.output)) == 1
    assert "not confirmed: some of its records are accepted numbers, restored" in capsys.readouterr().out
    # New accepted numbers are confirmed by nobody yet.
    accept.accept([ENTRY], elsewhere.output, folder, {"thm1": results.origin(ENTRY, elsewhere)})
    assert "confirmed" not in accepted.read_manifest(folder)["smoke/thm1.csv"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"value": 2.0}, "does not agree"),
        ({"commit": f"{'b' * 40}-dirty"}, "one commit without changes; bbbb"),
        ({"commit": None}, "one commit without changes; None"),
    ],
)
def test_only_a_run_of_one_commit_that_agrees_confirms(fresh, capsys, about, words):
    run, folder = fresh
    assert confirm(run("fresh", **about)) == 1
    assert words in capsys.readouterr().out
    assert "confirmed" not in accepted.read_manifest(folder)["smoke/thm1.csv"]


@pytest.mark.once
def test_a_run_that_is_not_complete_or_went_on_with_another_commit_does_not_confirm(fresh, capsys):
    run, folder = fresh
    records = run("fresh")
    first, second = records.of(ENTRY)
    records.add(replace(second, provenance={**second.provenance, "commit": "c" * 40}))
    assert confirm(records) == 1
    assert "must be of one commit without changes; aaaa" in capsys.readouterr().out
    records.output.record("thm1", first.unit).unlink()
    assert confirm(records) == 1
    assert "thm1: not computed, 1 of 2 units are there" in capsys.readouterr().out
    assert "confirmed" not in accepted.read_manifest(folder)["smoke/thm1.csv"]
