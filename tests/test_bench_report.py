"""The report, the sizes of an install, and the command line of the benchmarks."""

import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks._outcome import Outcome
from benchmarks._scaling import Curve, fit_exponent
from benchmarks.bench_install import installed_bytes

pytestmark = pytest.mark.once


def test_exponent_of_a_power():
    sizes = np.array([1, 2, 4, 8])
    assert np.isclose(fit_exponent(sizes, 3 * sizes**1.5), 1.5)
    assert np.isclose(fit_exponent(sizes, np.full(4, 7.0)), 0.0)


def test_report_shows_rates_exponents_and_the_trend(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks import _picture, report

    curve = Curve("batch", (1, 2, 4), (1.0, 2.0, 4.0), (8.0, 8.0, 8.0))
    programs = {"a: b": {"seconds": 0.002, "operations": 4e6, "memory": 2048.0}}
    entry = report.make_entry(1e10, programs, [curve], seconds=1.0)
    text = report.markdown(entry)
    assert "| a: b    |  2 |     4 |       2 |         20 |             2 |" in text
    assert "| batch | 1 to 4 | 1.00 |   0.00 |" in text
    slower = entry | {"programs": {"a: b": {**programs["a: b"], "seconds": 0.004}}}
    for history in ([entry], [entry, slower]):
        _picture.save(_picture.draw(history, [curve]), tmp_path / "report.svg")
        assert ElementTree.parse(tmp_path / "report.svg").getroot().tag.endswith("svg")


def test_sizes_of_installed_packages(tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "a.py").write_bytes(bytes(100))
    info = tmp_path / "Some_Package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Package\nVersion: 1.0\n")
    (info / "RECORD").write_text("some/a.py,,\nsome/missing.py,,\n")
    assert installed_bytes(tmp_path) == {"some-package": 100}


def run(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *args])
    return command.main()


def test_exit_code_is_that_of_the_worst(monkeypatch, capsys):
    monkeypatch.setattr(command, "run", lambda name, **options: [Outcome(name != "heads", name)])
    assert run(monkeypatch, "wall", "training") == 0
    assert run(monkeypatch, "heads", "training") == 1
    assert capsys.readouterr().out.splitlines() == ["ok   wall", "ok   training", "FAIL heads", "ok   training"]


def test_gates_without_a_clock_run_at_once_and_count(monkeypatch):
    started = []
    monkeypatch.setattr(command, "run_at_once", lambda names, options: started.append((names, options)))
    monkeypatch.setattr(command, "run", lambda name, **options: [Outcome(True, name)])
    assert run(monkeypatch) == 1
    assert run(monkeypatch, "--update") == 1
    assert started == [(["cost", "quality"], []), (["cost", "quality"], ["--update"])]


@pytest.mark.parametrize("args", [("nothing",), ("wall", "--update"), ("heads", "--update")])
def test_bad_arguments_are_sentences(monkeypatch, capsys, args):
    with pytest.raises(SystemExit):
        run(monkeypatch, *args)
    assert " got " in capsys.readouterr().err
