"""Accepted numbers become records again, whole or in part, and only where they are of the same experiment."""

import json
from dataclasses import replace

import pytest

from reproduce import accepted, results, runner, verify
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
    verify.accept([ENTRY], output, folder, {"thm1": results.origin(ENTRY, records)})
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
