"""Theorem 5: its second routes against hand computation, and the artifact at tier smoke."""

import math

import numpy as np
import pytest

from reproduce import __main__ as cli
from reproduce import results, verify
from reproduce.claims import Verdict
from reproduce.experiments.thm5 import lamperti, partition_prob, partitions, two_labels
from reproduce.paths import REFERENCE, Output
from reproduce.registry import REGISTRY

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    assert cli.main(["run", "--only", "thm5", "--tier", "smoke", "--out", str(root), "--quiet"]) == 0
    return Output(root=root, tier="smoke")


def test_every_claim_holds(output):
    for line in results.settle([REGISTRY["thm5"]], output):
        assert line.verdict is Verdict.HOLDS, line.claim.id


def test_numbers_agree_with_the_reference(output):
    comparison = verify.verify(REGISTRY["thm5"], output, REFERENCE)
    assert comparison.differences == ()
    assert comparison.num_rows > 100


def test_figure_is_drawn(output):
    assert output.figure("thm5", "pdf").read_bytes().startswith(b"%PDF")


def test_partitions_are_counted_by_bell_numbers():
    assert [len(list(partitions(tuple(range(n))))) for n in range(1, 7)] == [1, 2, 5, 15, 52, 203]


def test_partitions_of_two_labels_are_the_table():
    w = (0.6, 0.3, 0.1)
    found = [[partition_prob((c, d), w, 0.3) for d in range(3)] for c in range(3)]
    np.testing.assert_allclose(found, two_labels(w, 0.3), rtol=1e-12)
    # Three labels of one class: one, two or three clusters.
    expected = (0.7 * 1.7 * 0.6 + 3 * 0.3 * 0.7 * 0.6**2 + 2 * 0.3**2 * 0.6**3) / 2
    assert partition_prob((0, 0, 0), w, 0.3) == pytest.approx(expected, rel=1e-12)


def test_half_stable_ratio_is_the_square_of_a_cauchy_ratio():
    # At alpha = 1/2 the noise is 1 / (2 g^2) of a Gaussian g: p has the arcsine law at level odds.
    moments = lamperti(0.5, 0.5, 4)
    arcsine = [math.gamma(k + 0.5) * math.gamma(4 - k + 0.5) / (math.pi * math.gamma(5)) for k in range(5)]
    np.testing.assert_allclose(moments, arcsine, atol=1e-12)
