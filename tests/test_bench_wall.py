"""The wall-clock gate: a slowed loop is red, noise is not, and a promise fails below its floor."""

import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from benchmarks import _sides, bench_training, wall
from benchmarks._limits import LIMITS
from benchmarks._measure import Ratio
from benchmarks._promises import NAMES, PROMISED, judge, measure
from epinet_eqx.bayes import Deterministic
from epinet_eqx.networks import MLP
from epinet_eqx.training import train_steps

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent


def edited_copy(folder, file, old, new):
    """Return a copy of the source tree in which a file was changed."""
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "epinet_eqx" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return folder


def test_a_slowed_loop_is_red_and_other_programs_are_not_timed(monkeypatch, tmp_path):
    for name, value in (("ROUNDS", 4), ("MAX_ROUNDS", 8)):
        monkeypatch.setattr(wall, name, value)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    old = "jax.lax.fori_loop(0, num_steps, body, start)"
    new = "jax.lax.fori_loop(0, 4 * num_steps, lambda t, carry: body(t // 4, carry), start)"
    change = edited_copy(tmp_path / "change", "training/_step.py", old, new)
    # Of an older library, which did not have all there is now.
    export = "from ._step import make_train_step as make_train_step\n"
    base = edited_copy(tmp_path / "base", "training/__init__.py", export, "")
    found = wall.time_sides(change, base, ["loop: mlp", "epinet: embed", "resnet: forward"])
    assert found["epinet: embed"] == "unchanged" and found["resnet: forward"] == "not in the base"
    verdict = wall.judge(found, label="base")
    assert not verdict.passed
    assert "of 3 programs 1 compared, 1 unchanged, 1 not in the base" in verdict.text
    assert "| loop: mlp |" in verdict.text and "FAIL" in verdict.text


VERDICTS = {1.0: "ok", 1.1: "ok", 1.2: "warn", 1.45: "warn", 1.6: "FAIL"}


@pytest.mark.parametrize("factor", VERDICTS)
def test_ratio_of_minima_and_its_thresholds(factor):
    # Noise only ever makes slower, and a busy machine much slower.
    noise = np.random.default_rng(0).exponential(0.05, (2, 12))
    noise[:, 3:6] += 4.0
    comparison = wall.compare_times(factor * (1 + noise[0]), 1 + noise[1])
    assert comparison.low <= comparison.ratio <= comparison.high
    assert comparison.verdict == VERDICTS[factor]


def test_one_lucky_round_of_the_base_only_warns():
    comparison = wall.compare_times([1.0] * 12, [1.0] * 11 + [0.6])
    assert comparison.ratio > wall.FAILURE and comparison.low == 1.0
    assert comparison.verdict == "warn"
    assert wall.judge({"a": comparison}, label="base").passed


def test_the_source_of_the_merge_base(monkeypatch, tmp_path):
    repository = tmp_path / "repository"
    (repository / "src").mkdir(parents=True)
    monkeypatch.setattr(_sides, "ROOT", repository)

    def git(*args):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *args], cwd=repository, check=True, capture_output=True)

    def commit(text):
        (repository / "src" / "file").write_text(text)
        git("add", ".")
        git("commit", "-m", text)

    git("init", "-b", "main")
    commit("shared")
    git("checkout", "-b", "change")
    commit("changed")
    git("checkout", "main")
    commit("meanwhile")
    git("checkout", "change")
    for branch in (None, "main"):
        source = _sides.extract(_sides.merge_base(branch), tmp_path / str(branch))
        assert (source / "file").read_text() == "shared"
    assert (repository / "src" / "file").read_text() == "changed"


def test_a_worker_without_its_own_library_refuses(tmp_path):
    worker = _sides.Worker(tmp_path)
    with pytest.raises(RuntimeError, match="exit code 1 instead of an answer"):
        worker.answer()
    worker.close()


def test_a_slowed_compiled_loop_breaks_its_promise(monkeypatch):
    def slowed(*args, num_steps, **settings):
        return train_steps(*args, num_steps=20 * num_steps, **settings)

    monkeypatch.setattr(bench_training, "train_steps", slowed)
    monkeypatch.setattr(bench_training, "make_epinet", lambda key: Deterministic(MLP(10, 2, (5,), key=key)))
    monkeypatch.setattr(bench_training, "NUM_STEPS", 20)
    monkeypatch.setattr(bench_training, "NUM_ROUNDS", 2)
    (verdict,) = measure("training")
    assert not verdict.passed and "asked: at least 2.5, fails beyond" in verdict.text


def test_limits_are_those_of_ratios_and_within_what_was_measured():
    sources = "".join((ROOT / "benchmarks" / f"bench_{name}.py").read_text() for name in NAMES)
    assert set(PROMISED) <= set(NAMES)
    for name, (measured, limit) in LIMITS.items():
        assert f'"{name}"' in sources
        at_most = measured[0] > measured[1] or limit > measured[1]
        verdicts = [judge(Ratio(name, value, limit, at_most)).passed for value in (*measured, limit)]
        assert verdicts == [True, True, True]
        assert not judge(Ratio(name, limit * (1.01 if at_most else 0.99), limit, at_most)).passed


def test_a_ratio_without_a_limit_must_be_as_asked():
    assert judge(Ratio("new", 2.0, 2.0)).passed and not judge(Ratio("new", 1.9, 2.0)).passed
