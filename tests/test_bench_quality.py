"""The quality gate: a worse prior scale is red, and so is whatever else is not as committed."""

import dataclasses
import json

import pytest

from benchmarks import _miniatures, quality
from benchmarks._miniatures import testbed_divergences as divergences
from epinet_eqx.testbed import find_agent

pytestmark = pytest.mark.once

BASELINE = json.loads(quality.PATH.read_text())


@pytest.mark.long
def test_a_worse_prior_scale_is_red(monkeypatch):
    monkeypatch.setattr(_miniatures, "STEPS", 100)
    agent = find_agent("epinet")
    before = {name: {"value": v, "tolerance": 0.02} for name, v in divergences([("epinet", agent)]).items()}
    assert quality.compare(before, divergences([("epinet", agent)])).passed
    worse = quality.compare(before, divergences([("epinet", dataclasses.replace(agent, prior_scale=0.03))]))
    assert not worse.passed
    assert "testbed: epinet, joint KL" in worse.text and "*Numerics*" in worse.text


@pytest.mark.parametrize("factor", [0.97, 1.03, float("nan"), float("inf")])
def test_both_directions_and_no_number_are_red(factor):
    name = "testbed: mlp, joint KL"
    found = {key: entry["value"] for key, entry in BASELINE.items()}
    assert quality.compare(BASELINE, found).passed
    verdict = quality.compare(BASELINE, found | {name: factor * found[name]})
    assert not verdict.passed and name in verdict.text


def test_the_order_is_judged_whatever_the_baseline():
    found = {key: entry["value"] for key, entry in BASELINE.items()}
    epinet, ensemble = quality.ORDERS[0]
    swapped = found | {epinet: found[ensemble], ensemble: found[epinet]}
    verdict = quality.compare({name: {"value": value, "tolerance": 0.02} for name, value in swapped.items()}, swapped)
    assert not verdict.passed and f"{epinet} must be below {ensemble}" in verdict.text


def test_what_has_no_result_is_red():
    assert not quality.compare({}, {"new": 1.0}).passed


def test_update_keeps_tolerances(monkeypatch, tmp_path):
    path = tmp_path / "quality.json"
    path.write_text(json.dumps({"a": {"value": 1.0, "tolerance": 0.5}}))
    monkeypatch.setattr(quality, "measure", lambda: {"a": 2.0, "b": 3.0})
    assert not quality.main(path=path).passed
    assert quality.main(update=True, path=path).passed
    assert json.loads(path.read_text()) == {
        "a": {"value": 2.0, "tolerance": 0.5},
        "b": {"value": 3.0, "tolerance": quality.TOLERANCE},
    }
