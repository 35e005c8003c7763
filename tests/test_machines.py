"""What `verify` says of another machine: what differs that rounding depends on, and nothing else."""

import pytest

from reproduce import machines

pytestmark = pytest.mark.once

ORIGIN = {
    "python": "3.11.7",
    "instructions": "x86_64 avx avx2",
    "cpus": 2,
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
