"""What `verify` says of another machine: what differs that rounding depends on, and nothing else."""

import dataclasses
import shutil

import pytest

from reproduce import __main__ as cli
from reproduce import machines
from reproduce.aggregate import read_rows
from reproduce.artifact import Tolerance
from reproduce.paper.origins import machine_rows
from reproduce.paths import REFERENCE, Output
from reproduce.provenance import package_version
from reproduce.record import Record, Records
from reproduce.registry import REGISTRY
from reproduce.verify import shared_digits

pytestmark = pytest.mark.once

ORIGIN = {
    "python": "3.11.7",
    "instructions": "x86_64 avx avx2",
    "cpus": 2,
    "threads": 2,
    "xla_flags": "",
    "versions": {"jax": "0.10.2", "numpy": "2.3"},
    "seconds": 3.0,
    "commit": "a",
}


def test_the_same_machine_has_no_differences():
    assert machines.differences(ORIGIN, {**ORIGIN, "seconds": 90.0, "commit": "b"}) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpus": 64}, "the number of processors: 64 here, 2 there"),
        (
            {"instructions": "x86_64 avx avx2 avx512f"},
            "the instruction set: x86_64 avx avx2 avx512f here, x86_64 avx avx2",
        ),
        ({"versions": {"jax": "0.11", "numpy": "2.3"}}, "jax: 0.11 here, 0.10.2 there"),
        (
            {"xla_flags": "--xla_cpu_use_thunk_runtime=false"},
            "XLA_FLAGS: --xla_cpu_use_thunk_runtime=false here, nothing",
        ),
        ({"versions": [{"jax": "0.11"}, {"jax": "0.10.2"}]}, "the versions of packages: "),
    ],
)
def test_what_differs_is_told(change, words):
    (told,) = machines.differences({**ORIGIN, **change}, ORIGIN)
    assert told.startswith(words)


def test_what_the_reference_did_not_record_may_differ():
    there = {key: value for key, value in ORIGIN.items() if key != "instructions"}
    (told,) = machines.differences(ORIGIN, there)
    assert told == "the instruction set: x86_64 avx avx2 here, not recorded there"
    (told,) = machines.differences(there, there)
    assert told == "the instruction set: not recorded here, not recorded there"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu sse4_2 avx fma avx2 tsc\n", ["sse4_2", "avx", "fma", "avx2"]),
        ("processor : 0\nFeatures\t: fp asimd evtstrm\n", ["asimd"]),
        ("", []),
    ],
)
def test_instructions_are_read_where_linux_tells_them(tmp_path, monkeypatch, text, expected):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    monkeypatch.setattr(machines, "_CPU_INFO", path)
    assert machines.instructions().split()[1:] == expected
    monkeypatch.setattr(machines, "_CPU_INFO", tmp_path / "none")
    assert len(machines.instructions().split()) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "default"),
        ({"threads": 1}, "1 of 2 processors"),
        ({"xla_flags": "--xla_a=1", "x64": True}, "XLA_FLAGS=--xla_a=1, double precision"),
    ],
)
def test_an_unusual_setting_is_told(change, words):
    assert machines.setting({**ORIGIN, **change}) == words


def test_double_precision_is_told_also_where_the_reference_says_nothing_of_it():
    assert machines.differences({**ORIGIN, "x64": False}, ORIGIN) == []
    (told,) = machines.differences({**ORIGIN, "x64": True}, ORIGIN)
    assert told == "double precision: True here, False there"


def test_artifacts_are_noted_once_per_machine_setting_and_tier(tmp_path):
    def compared(agrees, digits=None):
        return {"agrees": agrees, "digits": digits, "largest": 0.1, "verdicts": [7, 8]}

    machines.confirm(tmp_path, ORIGIN, "smoke", {"thm1": compared("digits")})
    machines.confirm(tmp_path, {**ORIGIN, "x64": True}, "smoke", {"thm1": compared("apart", 1)})
    machines.confirm(tmp_path, ORIGIN, "smoke", {"thm1": compared("tolerance", 5), "tab01": compared("digits")})
    machines.confirm(tmp_path, ORIGIN, "smoke", {"thm2": compared("tolerance", 4)})
    found = [(row["setting"], row["numbers"], row["digits"], row["tolerance"]) for row in machine_rows(tmp_path)]
    assert found == [
        ("default", "theory, testbed; tier smoke", "1", "2, to 4 digits"),
        ("double precision", "theory; tier smoke", "0", "0"),
    ]
    told = [(row["apart"], row["verdicts"]) for row in machine_rows(tmp_path)]
    assert told == [("none", "21 of 24"), ("thm1", "7 of 8")]


@pytest.mark.parametrize(
    ("fresh", "accepted", "digits"),
    [
        ("0.5", "0.5", None),
        ("joint", "joint", None),
        ("joint", "marginal", 0),
        ("1.2345", "1.2346", 4),
        ("1.2345", "-1.2345", 0),
        ("1e-9", "-3e-9", None),  # both are zero within the tolerance
        ("nan", "1.0", 0),
        ("1.0", "1.00", None),
    ],
)
def test_digits_that_cells_share_are_counted(fresh, accepted, digits):
    assert shared_digits(fresh, accepted, Tolerance(absolute=1e-8)) == digits


def test_verify_notes_the_machine_beside_the_accepted_numbers(tmp_path, monkeypatch, capsys):
    reference = shutil.copytree(REFERENCE, tmp_path / "reference")
    (reference / machines.CONFIRMED).unlink(missing_ok=True)
    monkeypatch.setattr(cli, "REFERENCE", reference)
    words = ["--tier", "smoke", "--only", "fig01", "--out", str(tmp_path / "out")]
    records = Records(Output(root=tmp_path / "out", tier="smoke"))
    (job,) = records.jobs(REGISTRY["fig01"])
    rows = [{k: v for k, v in row.items() if k != "unit"} for row in read_rows(reference / "smoke" / "fig01.csv")]
    fresh = {"artifact": job.folder, "unit": job.unit, "hash": job.hash, "seed": 0, "rows": rows}
    records.add(
        Record(
            **fresh,
            version=package_version(),
            config=dataclasses.asdict(job.config),
            provenance={**ORIGIN, "seconds": 1.0},
        )
    )
    assert cli.main(["verify", *words]) == 0
    assert machines.read_confirmed(reference) == []
    assert cli.main(["verify", "--record", *words]) == 0
    assert f"noted: {reference / machines.CONFIRMED}" in capsys.readouterr().out
    (noted,) = machines.read_confirmed(reference)
    claims = len(REGISTRY["fig01"].claims)
    agreed = {"agrees": "digits", "digits": None, "largest": 0.0, "verdicts": [claims, claims]}
    assert noted["artifacts"] == {"fig01": agreed}
    assert (noted["tier"], noted["setting"]) == ("smoke", "default")
