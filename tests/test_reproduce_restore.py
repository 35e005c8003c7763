"""Accepted numbers become records again, whole or in part, and only where they are of the same experiment."""

import json
from dataclasses import replace

import pytest

from reproduce import accepted, runner, verify
from reproduce.errors import ReproduceError
from reproduce.inputs import Inputs
from reproduce.paths import Output
from reproduce.registry import REGISTRY
from reproduce.restore import restore

ENTRY = REGISTRY["thm1"]


@pytest.fixture
def reference(tmp_path, monkeypatch):
    """A reference of one of the two units of an artifact, and the records that it was made from."""
    output = Output(root=tmp_path / "first", tier="smoke")
    first, second = runner.jobs(ENTRY, output)
    monkeypatch.setattr(runner, "jobs", lambda entry, output: [look_up(output, job) for job in (first, second)])
    records = list(runner.compute([first], inputs=Inputs(), output=output))
    runner.record.write(output.record("thm1", first.unit), records[0])
    runner.collect(ENTRY, output, partial=True)
    folder = tmp_path / "reference"
    verify.accept([ENTRY], output, folder, {"thm1": runner.origin(ENTRY, output)})
    return folder, first.unit, records[0]


def look_up(output, job):
    path = output.record("thm1", job.unit)
    return replace(job, found=runner.record.look_up(path, wanted=job.hash, version=runner.package_version()))


@pytest.mark.once
def test_a_part_is_restored_and_nothing_else(reference, tmp_path):
    folder, unit, before = reference
    output = Output(root=tmp_path / "second", tier="smoke")
    assert restore(ENTRY, output, folder) == 1
    assert restore(ENTRY, output, folder) == 0
    done = {job.unit: job.found.record for job in runner.jobs(ENTRY, output)}
    assert sum(found is not None for found in done.values()) == 1
    after = done[unit]
    assert after.provenance["commit"] == before.provenance["commit"]
    runner.collect(ENTRY, output, partial=True)
    assert output.csv("thm1").read_bytes() == (folder / "smoke" / "thm1.csv").read_bytes()
    with pytest.raises(ReproduceError, match="thm1 has 1 of its 2 units"):
        runner.collect(ENTRY, output)


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
        restore(ENTRY, output, folder)
    (folder / "smoke" / "thm1.csv").write_text("unit,value\n")
    with pytest.raises(ReproduceError, match="must be what its manifest says; its checksum is another one"):
        restore(ENTRY, output, folder)
    (folder / "smoke" / "thm1.csv").unlink()
    with pytest.raises(ReproduceError, match="thm1 must have accepted numbers at tier smoke; there is no "):
        restore(ENTRY, output, folder)
    assert not any(output.root.rglob("*.json"))


def test_a_fingerprint_is_of_names_and_hashes(tmp_path):
    first, second = runner.jobs(ENTRY, Output(root=tmp_path, tier="smoke"))
    assert runner.fingerprint([first, second]) == runner.fingerprint([second, first])
    assert runner.fingerprint([first]) != runner.fingerprint([replace(first, hash="0")])
