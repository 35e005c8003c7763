"""The cost gate: what it counts, and that it turns red where a program costs more or is traced again."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import epinet_eqx as epi
from benchmarks import cost
from benchmarks._counts import count_entry_point, count_program
from benchmarks.programs import ENTRY_POINTS, PROGRAMS, Program
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import MLPEpinet

pytestmark = pytest.mark.once


def gate(name, inject):
    """Return the verdict on one program after something was done to the library."""
    before = {name: count_program(PROGRAMS[name])}
    assert cost.compare(before, {name: count_program(PROGRAMS[name])}, label="baseline").passed
    inject()
    return cost.compare(before, {name: count_program(PROGRAMS[name])}, label="baseline")


def test_an_extra_product_of_matrices_is_red(optimized, monkeypatch):
    plain = MLPEpinet.heads

    def wasteful(self, embedding, zs):
        outputs = plain(self, embedding, zs)
        return outputs + 1e-6 * outputs @ jnp.ones((outputs.shape[1], outputs.shape[1]))

    verdict = gate("epinet: head", lambda: monkeypatch.setattr(MLPEpinet, "heads", wasteful))
    assert not verdict.passed
    assert "epinet: head, operations" in verdict.text and "epinet: head, parameters" not in verdict.text


def test_a_forgotten_contraction_is_red(optimized, monkeypatch):
    def once_per_index(self, embedding, zs):
        def run(z):
            units = embedding + self.layers[0].weight[:, self.feature_dim :] @ z
            for layer in self.layers[1:]:
                units = layer(self.activation(units))
            return z @ units.reshape(self.index_dim, self.num_classes)

        return jax.vmap(run)(zs)

    verdict = gate("epinet: heads, M = 1000", lambda: monkeypatch.setattr(MLPEpinet, "heads", once_per_index))
    assert not verdict.passed
    assert "operations" in verdict.text and "memory" in verdict.text


def test_a_retrace_is_red(optimized, monkeypatch):
    plain = Prior.__init__

    def static_scale(self, network, scale=1.0):
        plain(self, network, scale)
        self.scale = epi.Frozen(scale)

    verdict = gate("epinet: embed", lambda: monkeypatch.setattr(Prior, "__init__", static_scale))
    assert not verdict.passed
    (row,) = [line for line in verdict.text.splitlines() if "traces" in line]
    assert row.split() == ["|", "epinet:", "embed,", "traces", "|", "1", "|", "3", "|", "+200.0", "%", "|"]


@pytest.mark.parametrize(("as_array", "traces"), [(True, 1), (False, 3)])
def test_traces_of_an_entry_point(as_array, traces):
    scaled = eqx.filter_jit(lambda x, scale: x * scale)

    def make(value):
        scale = jnp.asarray(value) if as_array else value
        return Program(scaled, (jnp.ones(3), scale), model=jnp.ones((2, 3)))

    assert count_entry_point(make) == {"traces": traces, "parameters": 6, "trained": 6}


def test_counts_are_those_of_the_program(optimized):
    def make(value):
        return Program(jnp.matmul, (jnp.full((4, 8), value), jnp.ones((8, 2))), model=epi.Frozen(jnp.ones(5)))

    found = count_program(make)
    assert (found["traces"], found["parameters"], found["trained"], found["memory"]) == (1, 5, 0, 0)
    assert found["operations"] == 2 * 4 * 8 * 2
    assert found["bytes"] == 4 * (4 * 8 + 8 * 2 + 4 * 2)


def test_one_percent_is_the_limit_and_less_is_said():
    before = {"a": {"operations": 1000.0, "memory": 0.0}}
    verdicts = [
        cost.compare(before, {"a": {"operations": n, "memory": 0.0}}, label="old") for n in (1009.0, 1011.0, 900.0)
    ]
    assert [verdict.passed for verdict in verdicts] == [True, False, True]
    assert "1,000 | 1,011 | +1.1 %" in verdicts[1].text and "-10.0 %" in verdicts[2].text
    # From nothing to something is no small growth.
    assert not cost.compare(before, {"a": {"operations": 1000.0, "memory": 1.0}}, label="old").passed


def test_programs_and_baseline_must_be_the_same_ones():
    for before, after in (({}, {"new": {}}), ({"gone": {}}, {})):
        verdict = cost.compare(before, after, label="old")
        assert not verdict.passed and "--update" in verdict.text


def test_baselines_are_written_compared_and_missed(monkeypatch, tmp_path):
    counts = {"a": {"operations": 100.0}}
    monkeypatch.setattr(cost, "measure", lambda: counts)
    skipped = cost.main(folder=tmp_path)
    assert skipped.passed and "not checked" in skipped.text
    assert cost.main(update=True, folder=tmp_path).passed
    assert cost.main(folder=tmp_path).passed
    counts = {"a": {"operations": 102.0}}
    assert not cost.main(folder=tmp_path).passed
    # The baseline of another version is not used, and not passed over.
    path = cost.baseline_path(tmp_path)
    path.rename(tmp_path / f"jax-0.0.1-{jax.default_backend()}.json")
    missing = cost.main(folder=tmp_path)
    assert not missing.passed and path.name in missing.text and "--update" in missing.text


def test_another_optax_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(cost, "measure", lambda: {"a": {"operations": 100.0}})
    cost.main(update=True, folder=tmp_path)
    path = cost.baseline_path(tmp_path)
    content = json.loads(path.read_text())
    content["versions"]["optax"] = "0.0.1"
    path.write_text(json.dumps(content))
    assert "optax 0.0.1" in cost.main(folder=tmp_path).text


@pytest.mark.parametrize("path", sorted(cost.FOLDER.glob("jax-*.json")), ids=lambda path: path.stem)
def test_committed_baselines_have_every_program_traced_once(path):
    programs = json.loads(path.read_text())["programs"]
    assert set(programs) == {*PROGRAMS, *ENTRY_POINTS}
    assert all(counts["traces"] == 1 for counts in programs.values())
