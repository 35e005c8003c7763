"""Records: whole or not there, skipped when they stand for the run, computed again when they do not."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from reproduce import __main__ as cli
from reproduce import progress, record, results, runner
from reproduce.artifact import TIERS
from reproduce.errors import ReproduceError
from reproduce.executors import open_executor
from reproduce.files import write_atomically
from reproduce.inputs import Inputs
from reproduce.paths import Output
from reproduce.progress import Progress, TimeLeft, expected_seconds
from reproduce.record import Records
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

ENTRY = REGISTRY["thm1"]


@pytest.fixture
def output(tmp_path):
    return Output(root=tmp_path, tier="smoke")


@pytest.fixture
def computed(monkeypatch):
    """Replace the experiments by one that only notes that it ran."""
    calls = []

    def compute(group, *, inputs, output):
        calls.extend(job.unit for job in group)
        return [job.record([{"value": 1.0}], {"seconds": 1.0, "commit": "c"}) for job in group]

    monkeypatch.setattr(runner, "compute", compute)
    return calls


def run(output, said, chosen=(ENTRY,), finish=lambda artifact: None, **options):
    with open_executor("local") as executor:
        defaults = {"inputs": Inputs(), "force": False, "progress": Progress(said.append, show=False)}
        runner.run(chosen, Records(output), **{**defaults, **options}, executor=executor, finish=finish)


def test_a_second_run_computes_nothing(output, computed):
    said = []
    run(output, said)
    units = list(REGISTRY["thm1"].at_tier("smoke").units())
    assert computed == units
    run(output, said)
    assert computed == units
    assert "have a record already" in said[-1]
    run(output, said, force=True)
    assert computed == units * 2


def test_each_record_is_read_once(output, computed, monkeypatch, capsys):
    arguments = ["run", "--only", "thm1,fig01", "--tier", "smoke", "--out", str(output.root), "--quiet"]
    monkeypatch.setattr(results, "draw", lambda artifact, output, again: None)
    monkeypatch.setattr(results, "settle", lambda chosen, output: [])
    assert cli.main(arguments) == 0
    reads = []
    look_up = record.look_up
    monkeypatch.setattr(record, "look_up", lambda path, **options: reads.append(path) or look_up(path, **options))
    for command in (arguments, ["verify", *arguments[1:-1]]):
        reads.clear()
        cli.main(command)
        assert len(computed) == 3
        assert len(reads) == len(set(reads)) >= 3


def test_an_artifact_is_finished_as_soon_as_it_is_complete(output, computed):
    said = []
    run(output, said, chosen=[REGISTRY["thm1"]])
    log = []
    chosen = [REGISTRY[name] for name in ("fig01", "thm1", "fig03")]
    finish = lambda artifact: log.append((artifact.id, len(computed)))  # noqa: E731
    run(output, said, chosen=chosen, finish=finish)
    # What was there before anything was computed, then each when its last unit was done.
    assert log == [("thm1", 2), ("fig01", 3), ("fig03", 4)]


def test_a_process_with_other_code_computes_nothing(output):
    job, _ = Records(output).jobs(ENTRY)
    with pytest.raises(ReproduceError, match="thm1 .* must be computed by the code of the process that asks"):
        next(runner.compute([replace(job, hash="other")], inputs=Inputs(), output=output))


def test_progress_is_one_line_per_artifact(output, computed):
    said = []
    chosen = [REGISTRY["thm1"], REGISTRY["fig01"]]
    run(output, said, chosen=chosen, progress=Progress(said.append))
    assert said[0].startswith("3 units to compute, about ")
    assert [line.partition(",")[0] for line in said[1:]] == [
        "thm1: 1 of 2 units",
        "thm1: 2 of 2 units",
        "fig01: 1 of 1 units",
    ]


def test_the_path_of_a_figure_is_told_before_the_next_run(output, computed, monkeypatch):
    log = []
    monkeypatch.setattr(cli, "_say", log.append)
    monkeypatch.setattr(cli, "_tell", lambda words: log.append(f"progress {words}"))
    monkeypatch.setattr(results, "draw", lambda artifact, output, again: log.append(f"drawn {artifact.id}"))
    monkeypatch.setattr(results, "settle", lambda chosen, output: [])
    cli.main(["run", "--only", "thm1,fig01", "--tier", "smoke", "--out", str(output.root)])
    told = [line.partition(", about")[0] for line in log if "units to compute" not in line]
    figure = {name: str(output.figure(name, "pdf")) for name in ("fig01", "thm1")}
    assert told == [
        "progress fig01: 1 of 1 units",
        "drawn fig01",
        f"fig01: {figure['fig01']}",
        "progress thm1: 1 of 2 units",
        "progress thm1: 2 of 2 units",
        "drawn thm1",
        f"thm1: {figure['thm1']}",
    ]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("slower", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("unequal", [1.0, 1.6])
def test_time_left_is_right_within_a_factor_of_two(workers, slower, unequal):
    """Play runs of three artifacts whose units differ in length, on a machine that is not the one that was expected."""
    now = [0.0]
    expected = {(name, str(unit)): seconds for name, seconds in (("a", 2), ("b", 9), ("c", 30)) for unit in range(24)}
    takes = {key: slower * expected[key] * unequal ** (1 if int(key[1]) % 2 else -1) for key in expected}
    left = TimeLeft(expected, workers=workers, clock=lambda: now[0])
    # Each worker takes the next unit when it is done with its last one.
    free, ends = [0.0] * workers, []
    for key, seconds in takes.items():
        worker = free.index(min(free))
        free[worker] += seconds
        ends.append((free[worker], key))
    last, told = max(free), []
    for end, key in sorted(ends):
        now[0] = end
        left.add(key, takes[key])
        # Nobody knows how long the very last run takes.
        if 0.1 * last < end < 0.8 * last:
            told.append(left.seconds() / (last - end))
    assert min(told) > 0.5 and max(told) < 2.0
    assert left.seconds() == 0.0


def test_a_record_with_another_digit_is_computed_again(output, computed):
    said = []
    run(output, said)
    path = output.record("thm1", computed[0])
    whole = json.loads(path.read_text())
    (name, value) = next((n, v) for n, v in whole["rows"][0].items() if isinstance(v, int | float))
    changed = {**whole, "rows": [{**whole["rows"][0], name: value + 1}, *whole["rows"][1:]]}
    path.write_text(json.dumps(changed))
    run(output, said)
    assert "computed again: the record is damaged or cut off" in said[-1]
    assert json.loads(path.read_text())["rows"] == whole["rows"]
    # Records of versions without checksums are used as they are.
    path.write_text(json.dumps({n: v for n, v in whole.items() if n != "checksum"}))
    count = len(computed)
    run(output, said)
    assert len(computed) == count


def test_a_cut_off_record_is_computed_again(output, computed):
    said = []
    run(output, said)
    path = output.record("thm1", computed[0])
    path.write_bytes(path.read_bytes()[:40])
    run(output, said)
    assert computed[2:] == computed[:1]
    assert "computed again: the record is damaged or cut off" in said[-1]


def test_a_record_of_another_version_is_computed_again(output, computed):
    said = []
    run(output, said)
    path = output.record("thm1", computed[1])
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.1", "checksum": ""}))
    run(output, said)
    assert computed[2:] == computed[1:2]
    assert "the record is of version 0.0.1" in said[-1]


def test_a_change_of_configuration_is_noticed(output, computed, monkeypatch):
    said = []
    run(output, said)
    changed = replace(ENTRY.at_tier("smoke"), logit_gap=41.0)
    run(output, said, chosen=[replace(ENTRY, tiers={"smoke": changed})])
    assert computed[2:] == computed[:2]
    assert "another configuration or experiment" in said[-1]


def test_the_hash_depends_on_all_that_matters():
    config = ENTRY.at_tier("paper")
    parts = {"artifact": "a", "unit": "u", "config": config, "seed": 1, "version": "1", "source": b"code"}
    base = record.config_hash(**parts)
    changes = {
        "artifact": "b",
        "unit": "v",
        "config": replace(config, num_samples=1),
        "seed": 2,
        "version": "2",
        "source": b"other code",
    }
    assert record.config_hash(**parts) == base
    assert len({base, *(record.config_hash(**{**parts, name: value}) for name, value in changes.items())}) == 7


def test_the_source_of_an_experiment_includes_what_it_imports():
    # Theorem 1 takes its ENNs from the module of Figure 1.
    assert b"class SignIndex" in REGISTRY["thm1"].source
    assert b"def decide" not in REGISTRY["fig01"].source


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_atomically(path, b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReproduceError, match=r"No space left on device\); what was there before is unchanged"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_atomically(path, b"old")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_rows_must_hold_plain_values(tmp_path):
    wrong = record.Record(
        artifact="a", unit="u", hash="", version="", config={}, seed=0, rows=[{"value": [1.0]}], provenance={}
    )
    with pytest.raises(TypeError, match="strings and numbers; got list"):
        record.write(tmp_path / "x.json", wrong)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_says_what_is_done_and_how_to_continue(output, monkeypatch, capsys, computed):
    compute = runner.compute

    def interrupted(job, *, inputs, output):
        if computed:
            raise KeyboardInterrupt
        return compute(job, inputs=inputs, output=output)

    monkeypatch.setattr(runner, "compute", interrupted)
    arguments = ["run", "--only", "thm1", "--tier", "smoke", "--out", str(output.root), "--quiet"]
    arguments += ["--data-dir", "some/data"]
    assert cli.main(arguments) == 130
    said = capsys.readouterr().err
    assert "Stopped: 1 of 2 units are done and kept." in said
    assert f"python -m reproduce run --tier smoke --out {output.root} --only thm1 --data-dir some/data" in said
    assert output.record("thm1", computed[0]).exists()


def test_a_folder_that_is_not_there_is_told_with_what_it_should_hold(tmp_path):
    with pytest.raises(ReproduceError, match="`--data-dir` must be given; expected CIFAR-10"):
        Inputs().require("data_dir", expected="CIFAR-10")
    with pytest.raises(ReproduceError, match="`--weights` must be a folder that exists; got .*none. Expected networks"):
        Inputs(weights=tmp_path / "none").require("weights", expected="networks")
    assert Inputs(weights=tmp_path).require("weights", expected="networks") == tmp_path


def test_ctrl_c_while_drawing_is_no_traceback(output, monkeypatch, capsys, computed):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "collect", stop)
    assert cli.main(["run", "--only", "thm1", "--tier", "smoke", "--out", str(output.root), "--quiet"]) == 130
    assert "2 of 2 units are done and kept. Continue with: python -m reproduce run" in capsys.readouterr().err


def test_a_job_that_is_ended_leaves_no_process_behind(output):
    options = ["--only", "thm1", "--tier", "smoke", "--out", str(output.root), "--workers", "2"]
    started = [sys.executable, "-m", "reproduce", "run", *options]
    with subprocess.Popen(started, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as job:
        assert job.stderr is not None
        # The progress bar is there once tasks are handed out.
        while (words := job.stderr.read(80)) and "unit" not in words:
            pass
        job.terminate()
        # Processes that are left behind would hold the other end of this pipe.
        _, words = job.communicate(timeout=60)
    assert job.returncode == 130
    assert "Continue with: python -m reproduce run" in words


def test_what_two_figures_share_is_computed_once(output, computed):
    chosen = [REGISTRY["fig05"], REGISTRY["fig09"]]
    run(output, [], chosen=chosen)
    shared = set(REGISTRY["fig05"].at_tier("smoke").units()) & set(REGISTRY["fig09"].at_tier("smoke").units())
    assert shared == {"epinet-016", "epinet-017"}
    assert len(computed) == len(set(computed))
    assert all(Records(output).is_complete(artifact) for artifact in chosen)


@pytest.mark.parametrize(("commit", "commits"), [("d", ["d", "c"]), (["a", "c"], ["a", "c"]), ("c", "c")])
def test_provenance_of_a_run_over_several_commits_lists_them(output, computed, commit, commits):
    run(output, [])
    path = output.record("thm1", computed[0])
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "provenance": {"seconds": 2.0, "commit": commit}, "checksum": ""}))
    records = Records(output)
    found = results.origin(ENTRY, records)
    assert found.pop("fingerprint") == results.fingerprint(records.jobs(ENTRY))
    assert found == {"seconds": 3.0, "commit": commits, "units": 2, "missing": 0}


@pytest.mark.parametrize("tier", TIERS)
def test_artifacts_that_share_records_agree_on_what_they_are(tier):
    by_folder = {}
    for artifact in REGISTRY.values():
        if tier not in artifact.tiers:
            continue
        for unit, config in artifact.at_tier(tier).units().items():
            assert by_folder.setdefault((artifact.folder, unit), config) == config


def test_figures_that_share_networks_are_computed_together(output):
    chosen = [REGISTRY[name].at("smoke") for name in ("fig02", "fig06", "fig14")]
    work = {job.unit: job for entry in chosen for job in Records(output).jobs(entry)}
    groups = runner.grouped(list(work.values()), output)
    assert len(groups) == 2 * REGISTRY["fig02"].at_tier("smoke").protocol.num_seeds
    for together, apart in zip(groups[::2], groups[1::2], strict=True):
        assert {job.config.part for job in together} == {"bases", "ensembles", "epinets", "controls", "ablation"}
        # The networks of baselines are nobody else's: another process computes them.
        assert {job.config.part for job in apart} == {"baselines"}


def test_the_run_that_last_confirmed_numbers_says_how_long_they_take(monkeypatch):
    manifest = {"laptop/thm1.csv": {"seconds": 40.0, "confirmed": {"seconds": 10.0}}}
    monkeypatch.setattr(progress, "read_manifest", lambda _: manifest)
    entry = REGISTRY["thm1"]
    assert expected_seconds(entry, "laptop") == 10.0
    del manifest["laptop/thm1.csv"]["confirmed"]
    assert expected_seconds(entry, "laptop") == 40.0
    manifest.clear()
    assert expected_seconds(entry, "laptop") == 60 * entry.minutes["laptop"]
