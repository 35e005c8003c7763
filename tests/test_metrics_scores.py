"""Calibration, Brier score and out-of-distribution detection against closed forms."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.metrics import (
    accuracy,
    aupr,
    auroc,
    brier_score,
    expected_calibration_error,
    fpr_at_tpr,
)

pytestmark = pytest.mark.once


def close(a, b):
    return np.allclose(a, b, rtol=1e-5, atol=1e-6)


def binary(*probs):
    """Return log-probabilities of two classes from those of the first."""
    return jnp.log(jnp.array([[p, 1 - p] for p in probs]))


def test_all_certain_batch():
    # Pitfall 5: a confidence of exactly one belongs to the last bin.
    log_probs = binary(1.0, 1.0, 1.0, 0.0)
    assert close(expected_calibration_error(log_probs, jnp.array([0, 0, 0, 1])), 0)
    assert close(expected_calibration_error(log_probs, jnp.array([0, 0, 0, 0])), 0.25)
    assert close(accuracy(log_probs, jnp.array([0, 0, 0, 0])), 0.75)
    assert close(brier_score(log_probs, jnp.array([0, 0, 0, 0])), 0.5)


def test_calibration_error_by_hand():
    # Bins (0.5, 0.75] and (0.75, 1]: 0.75 is in the first with 0.55.
    log_probs = binary(0.55, 0.75, 0.95, 0.85)
    y = jnp.array([0, 1, 0, 0])
    expected = (abs((1 - 0.55) + (0 - 0.75)) + abs((1 - 0.95) + (1 - 0.85))) / 4
    assert close(expected_calibration_error(log_probs, y, num_bins=4), expected)
    # One bin compares the overall accuracy with the overall confidence.
    assert close(expected_calibration_error(log_probs, y, num_bins=1), abs(0.75 - (0.55 + 0.75 + 0.95 + 0.85) / 4))


def test_bins_are_closed_on_the_right():
    # A confidence on the edge between two bins is not in the upper one, where its gap would cancel the other's.
    log_probs = binary(0.5, 0.75)
    assert jnp.exp(log_probs[0, 0]) == 0.5
    found = expected_calibration_error(log_probs, jnp.array([0, 1]), num_bins=2)
    assert close(found, (abs(1 - 0.5) + abs(0 - 0.75)) / 2)


def test_brier_score_of_a_uniform_prediction():
    assert close(brier_score(jnp.log(jnp.full((3, 4), 0.25)), jnp.array([0, 1, 3])), 0.75**2 + 3 * 0.25**2)


@pytest.mark.parametrize(
    ("log_probs", "y", "message"),
    [
        (jnp.zeros((2, 2)), jnp.array([0, 1]), "must be log-probabilities that sum to one; got a row"),
        (jnp.full((2, 2), jnp.nan), jnp.array([0, 1]), "sum to nan"),
        (binary(0.5), jnp.array([2]), "`y` must hold classes from 0 to 1; got values from 2 to 2."),
        (binary(0.5), jnp.array([0, 1]), "`y` must hold one integer class per row of `log_probs`, 1; got shape (2,)"),
        (binary(0.5)[0], jnp.array([0, 1]), "`log_probs` must hold one row of log-probabilities per example"),
        (jnp.zeros((0, 2)), jnp.zeros(0, int), "`log_probs` must hold one row"),
    ],
)
@pytest.mark.parametrize("metric", [accuracy, brier_score, expected_calibration_error])
def test_bad_predictions_are_refused(metric, log_probs, y, message):
    with pytest.raises(ValueError) as error:
        metric(log_probs, y)
    assert message in str(error.value)


def test_metrics_work_inside_a_program():
    log_probs, y = binary(0.55, 0.75), jnp.array([0, 1])
    assert close(eqx.filter_jit(expected_calibration_error)(log_probs, y), expected_calibration_error(log_probs, y))
    with pytest.raises(RuntimeError, match="sum to one"):
        eqx.filter_jit(brier_score)(log_probs + 1, y)


def test_detection_metrics_equal_their_definitions(getkey):
    # Scores on a coarse grid, so that there are many ties.
    inside = jnp.round(2 * jr.normal(getkey(), (30,)))
    outside = jnp.round(2 * jr.normal(getkey(), (40,)) + 2)
    pairs = [(o > i) + 0.5 * (o == i) for i, o in itertools.product(np.asarray(inside), np.asarray(outside))]
    assert close(auroc(inside, outside), np.mean(pairs))
    # The curves, threshold by threshold from above.
    precision_sum, recall_before, rates = 0.0, 0.0, []
    for threshold in sorted(set(np.concatenate([inside, outside]).tolist()), reverse=True):
        hits, alarms = int((outside >= threshold).sum()), int((inside >= threshold).sum())
        precision_sum += (hits / 40 - recall_before) * hits / (hits + alarms)
        recall_before = hits / 40
        rates.append((hits / 40, alarms / 30))
    assert close(aupr(inside, outside), precision_sum)
    assert close(fpr_at_tpr(inside, outside), next(alarm for hit, alarm in rates if hit >= 0.95))
    assert close(fpr_at_tpr(inside, outside, tpr=0.5), next(alarm for hit, alarm in rates if hit >= 0.5))


def test_detection_at_the_extremes():
    low, high = jnp.arange(20.0), 100 + jnp.arange(20.0)
    assert (auroc(low, high), aupr(low, high), fpr_at_tpr(low, high)) == (1, 1, 0)
    assert (auroc(high, low), fpr_at_tpr(high, low)) == (0, 1)
    # All scores equal: chance level.
    assert close(auroc(jnp.zeros(3), jnp.zeros(5)), 0.5) and close(aupr(jnp.zeros(3), jnp.zeros(5)), 5 / 8)
    # 19 of 20 are 95 %: the threshold is the second lowest score outside.
    assert close(fpr_at_tpr(jnp.array([0.5, 1.5]), low), 0.5)


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_tpr])
def test_scores_are_ranked_in_their_own_precision(metric):
    # Differences that single precision does not have.
    inside = 1.0 + 1e-9 * np.arange(10)
    outside = inside + 5.5e-9
    assert np.unique(np.concatenate([inside, outside]).astype(np.float32)).size == 1
    assert metric(inside, outside) == metric(np.arange(10.0), np.arange(10.0) + 5.5)
    with pytest.raises(ValueError, match="`scores_in` must be known numbers"):
        jax.jit(lambda scores: jnp.asarray(metric(scores, outside)))(jnp.ones(3))


@pytest.mark.parametrize("metric", [auroc, aupr, fpr_at_tpr])
def test_bad_scores_are_refused(metric):
    with pytest.raises(ValueError, match="`scores_in` must be finite; got 1 non-finite of 2 values"):
        metric(jnp.array([1.0, jnp.nan]), jnp.zeros(2))
    with pytest.raises(ValueError, match="`scores_out` must be a vector of at least one floating-point score"):
        metric(jnp.zeros(2), jnp.zeros(0))
    with pytest.raises(ValueError, match=r"`scores_in` must be a vector .* got shape \(2, 2\) of float32"):
        metric(jnp.zeros((2, 2)), jnp.zeros(2))
    with pytest.raises(ValueError, match="`tpr` must be above 0 and at most 1; got 0"):
        fpr_at_tpr(jnp.zeros(2), jnp.zeros(2), tpr=0.0)
