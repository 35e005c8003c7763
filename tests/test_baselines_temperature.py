"""A temperature for joint predictions with the marginal log-loss held."""

import jax.numpy as jnp
import numpy as np
import pytest
from enn_tables import Table

from epinet_eqx import Draws, Tempered
from epinet_eqx.metrics import log_losses
from epinet_eqx.tuning import tune, tune_temperature

# Two particles that disagree, each sure of itself, and labels that agree with the first in both anchors of a pair.
DISAGREEING = Table([[[2.0, 0.0], [2.0, 0.0]], [[0.0, 2.0], [0.0, 2.0]]])
X, Y = jnp.array([0, 1]), jnp.array([0, 0])


def test_colder_is_better_for_joint_predictions_and_the_marginal_does_not_care():
    # The marginal prediction is one half at every temperature, up to rounding; the joint loss falls to log 2.
    tuned = tune_temperature(
        DISAGREEING,
        X,
        Y,
        Draws.all(DISAGREEING.index),
        temperatures=jnp.array([0.1, 0.5, 2.0]),
        max_marginal_loss_increase=1e-6,
    )
    assert np.isclose(tuned.best, 0.1) and tuned.index == 1 and jnp.all(tuned.allowed)
    assert np.isclose(tuned.losses.mean[1], np.log(2), atol=1e-3) and np.allclose(tuned.marginal.mean, np.log(2))
    expected = log_losses(Tempered(DISAGREEING, 0.5), X, Y, Draws.all(DISAGREEING.index))
    assert np.isclose(tuned.losses.mean[2], expected.joint.mean, rtol=1e-5)


def test_marginal_log_loss_is_held():
    # An anchor whose particles agree, on the wrong label: there, sharpening costs.
    table = Table([[[2.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [1.0, 0.0]]])
    y, temperatures = jnp.array([0, 1]), jnp.array([0.7, 0.9, 1.5])
    held = tune_temperature(table, X, y, Draws.all(table.index), temperatures=temperatures, tau=2)
    assert held.allowed.tolist() == [True, False, False, True]
    excess = held.marginal.mean - held.marginal.mean[0]
    best = min(np.flatnonzero(held.allowed), key=lambda number: held.losses.mean[number])
    assert held.index == best and np.all((np.asarray(excess) <= 0) == np.asarray(held.allowed))
    # A tolerance lets more in, up to all of them; candidate 0 is the answer where nothing else is allowed.
    loose = tune_temperature(
        table,
        X,
        y,
        Draws.all(table.index),
        temperatures=temperatures,
        max_marginal_loss_increase=float(excess[2]) + 1e-4,
    )
    assert loose.allowed.tolist() == [True, False, True, True]
    alone = tune_temperature(table, X, y, Draws.all(table.index), temperatures=temperatures[:2])
    assert alone.best == 1.0 and alone.index == 0 and alone.allowed.tolist() == [True, False, False]
    free = tune(lambda t: Tempered(table, t), temperatures, X, y, Draws.all(table.index))
    assert jnp.all(free.allowed) and free.index == jnp.argmin(free.losses.mean)


def test_bad_input_is_named(as_user):
    with pytest.raises(ValueError, match="`max_marginal_loss_increase` must be finite and at least 0; got -1.0"):
        tune_temperature(
            DISAGREEING, X, Y, Draws.all(DISAGREEING.index), temperatures=jnp.ones(1), max_marginal_loss_increase=-1.0
        )
    with pytest.raises(
        ValueError, match=r"`temperatures` must be a vector of at least one temperature; got shape \(0,\)"
    ):
        tune_temperature(DISAGREEING, X, Y, Draws.all(DISAGREEING.index), temperatures=[])
    with pytest.raises(
        ValueError, match=r"`temperatures` must be a vector of at least one temperature; got shape \(\)"
    ):
        tune_temperature(DISAGREEING, X, Y, Draws.all(DISAGREEING.index), temperatures=2.0)
    with pytest.raises(ValueError, match="`temperature` must be finite and at least 1e-06; got -1.0"):
        tune_temperature(DISAGREEING, X, Y, Draws.all(DISAGREEING.index), temperatures=jnp.array([-1.0]))
