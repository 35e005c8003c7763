"""Every theory artifact at tier smoke: computed, drawn, judged and verified."""

import json

import jax.numpy as jnp
import pytest

from reproduce import __main__ as cli
from reproduce import aggregate, results, verify
from reproduce.claims import Verdict
from reproduce.experiments import thm2
from reproduce.paths import REFERENCE, Output
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

ARTIFACTS = ("fig01", "fig03", "fig04", "thm1", "thm2")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """Run all artifacts once, through the command line."""
    root = tmp_path_factory.mktemp("out")
    assert cli.main(["run", "--only", ",".join(ARTIFACTS), "--tier", "smoke", "--out", str(root), "--quiet"]) == 0
    return Output(root=root, tier="smoke")


@pytest.mark.parametrize("name", ARTIFACTS)
def test_no_claim_fails_and_the_exact_ones_hold(output, name):
    for line in results.settle([REGISTRY[name]], output):
        if line.measurement.standard_error == 0:
            assert line.verdict is Verdict.HOLDS, line.claim.id
        assert line.verdict is not Verdict.FAILS, line.claim.id


@pytest.mark.parametrize("name", ARTIFACTS)
def test_numbers_agree_with_the_reference(output, name):
    comparison = verify.verify(REGISTRY[name], output, REFERENCE)
    assert comparison.differences == ()
    assert comparison.num_rows > 0


@pytest.mark.parametrize("name", ARTIFACTS)
def test_drawing_again_gives_the_same_bytes(output, name):
    kinds = ("pdf", "png")
    first = [output.figure(name, kind).read_bytes() for kind in kinds]
    results.draw(REGISTRY[name], output)
    assert [output.figure(name, kind).read_bytes() for kind in kinds] == first
    assert first[0].startswith(b"%PDF")
    assert b"CreationDate" not in first[0]


def test_ledger_has_every_claim(output):
    claims = [claim for name in ARTIFACTS for claim in REGISTRY[name].claims]
    shown = output.claims("md").read_text()
    assert all(f"| {claim.id} |" in shown for claim in claims)
    assert len(output.claims("csv").read_text().splitlines()) == 1 + len(claims)


def test_records_tell_where_they_come_from(output):
    content = json.loads(output.record("thm1", "tau02").read_text())
    assert content["config"]["tau"] == 2
    assert content["seed"] == 101
    assert {"python", "platform", "versions", "commit", "matmul_precision", "seconds"} <= set(content["provenance"])
    assert {"jax", "equinox", "epinet_eqx"} <= set(content["provenance"]["versions"])


def test_a_changed_number_does_not_verify(output, capsys):
    path = output.csv("thm1")
    kept = path.read_bytes()
    rows = aggregate.read_rows(path)
    exact = next(row["exact"] for row in rows if row["agent"] == "marginal")
    path.write_bytes(kept.replace(f",{exact:.9g},".encode(), b",0.123,", 1))
    comparison = verify.verify(REGISTRY["thm1"], output, REFERENCE)
    path.write_bytes(kept)
    assert "exact: 0.123" in comparison.differences[0]


def test_verify_command_passes(output, capsys):
    arguments = ["verify", "--only", ",".join(ARTIFACTS), "--tier", "smoke", "--out", str(output.root)]
    assert cli.main(arguments) == 0
    assert "5 of 5 artifacts agree" in capsys.readouterr().out


def test_a_prediction_beyond_a_tie_near_a_certainty_is_still_a_distribution():
    # The outcome that the misled action is good for is so unlikely that the tie is next to a change of sign.
    params = jnp.array([[0.0, 0.0], [jnp.arctanh(0.7005), -10.0]])
    kl, lost = thm2._mislead(params, jnp.asarray(0.7))
    assert 0.69 < lost < 0.71
    assert lost < jnp.sqrt(2 * kl)
