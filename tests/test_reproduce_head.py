"""The Pitman-Yor head in the reproduction: artifacts of the testbed at tier smoke."""

import pytest

from reproduce import __main__ as cli
from reproduce import results, verify
from reproduce.claims import Verdict
from reproduce.paths import REFERENCE, Output
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once

ARTIFACTS = ("testbed_head", "testbed_mean", "testbed_near")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    assert cli.main(["run", "--only", ",".join(ARTIFACTS), "--tier", "smoke", "--out", str(root), "--quiet"]) == 0
    return Output(root=root, tier="smoke")


@pytest.mark.parametrize("name", ARTIFACTS)
def test_artifacts_run_agree_and_are_drawn(output, name):
    comparison = verify.verify(REGISTRY[name], output, REFERENCE)
    assert comparison.differences == () and comparison.num_rows > 0
    assert output.figure(name, "pdf").read_bytes().startswith(b"%PDF")
    # Two problems prove nothing, but a verdict there must be.
    assert all(line.verdict in Verdict for line in results.settle([REGISTRY[name]], output))
