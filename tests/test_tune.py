"""The tuner: the right candidate, one program for all, and nothing compiled twice."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Counting, Table, Traces

import epinet_eqx as epi
from epinet_eqx.metrics import log_losses
from epinet_eqx.networks import MLP
from epinet_eqx.tuning import tune

pytestmark = pytest.mark.once


@pytest.fixture
def data(getkey):
    return jr.normal(getkey(), (6, 3)), jnp.array([0, 3, 2, 1, 1, 0])


@pytest.fixture
def epinet(getkey):
    return epi.attach(MLP(3, 4, (8,), key=getkey()), out_size=4, index_dim=3, hidden=(5,), key=getkey())


def test_best_temperature_in_closed_form():
    # Three of four labels agree with logits (g, 0): the loss is least where the prediction is 3/4, at g / T = log 3.
    table = Table([[[5.0, 0.0]]])
    temperatures = jnp.linspace(1.0, 8.0, 29)
    tuned = tune(
        lambda t: epi.Tempered(table, t),
        temperatures,
        jnp.zeros(4, int),
        jnp.array([0, 0, 0, 1]),
        epi.Draws.all(table.index),
        metric="marginal",
    )
    assert np.isclose(tuned.best, 5 / np.log(3), atol=0.13)
    assert tuned.best == temperatures[tuned.index] and tuned.losses.mean.shape == (29,)
    assert tuned.losses.exact and tuned.losses.tau == 1


def test_temperature_and_prior_scale_are_one_program_each(epinet, data, getkey):
    x, y = data
    traces, draws = Traces(), epi.Draws.sample(epinet.index, 9, key=getkey())
    builds = {
        "temperature": lambda t: Counting(epi.Tempered(epinet, t), traces),
        "prior scale": lambda s: Counting(epinet.with_prior_scales(s), traces),
    }
    for build in builds.values():
        before = traces.count
        candidates = jnp.array([0.5, 1.0, 3.0])
        tuned = tune(build, candidates, x, y, draws, tau=4)
        first = traces.count - before
        # One look at the shape of the outputs, and one trace of the program for all candidates.
        assert first == 2
        again = tune(build, candidates * 1.5, x, y, epi.Draws.sample(epinet.index, 9, key=getkey()), tau=4)
        assert traces.count - before == first
        assert again.losses.num_samples == 9 and again.losses.tau == 4
        for number, candidate in enumerate(candidates):
            expected = log_losses(build(candidate), x, y, draws, tau=4).joint
            assert np.allclose(tuned.losses.mean[number], expected.mean, rtol=1e-5)
        assert tuned.index == jnp.argmin(tuned.losses.mean)


def test_rebuilt_networks_are_never_stale(data, getkey):
    # The same function object, which sees another network the second time.
    x, y = jnp.arange(2), jnp.array([0, 1])
    held = [Table([[[1.0, 0.0], [0.0, 1.0]]])]

    def build(temperature):
        return epi.Tempered(held[0], temperature)

    draws = epi.Draws.all(held[0].index)
    first = tune(build, jnp.array([1.0, 2.0]), x, y, draws)
    held[0] = Table([[[0.0, 1.0], [1.0, 0.0]]])
    second = tune(build, jnp.array([1.0, 2.0]), x, y, draws)
    assert (first.index, second.index) == (0, 1)


def test_candidates_may_be_trees_and_single():
    table = Table([[[1.0, 0.0], [0.0, 1.0]]])
    x, y = jnp.arange(2), jnp.array([0, 1])

    def build(candidate):
        shifted = eqx.tree_at(lambda t: t.outputs, table, table.outputs + candidate["shift"][None, None])
        return epi.Tempered(shifted, candidate["temperature"])

    candidates = {"shift": jnp.array([[0.0, 0.0], [1.0, 0.0]]), "temperature": jnp.array([1.0, 1.0])}
    tuned = tune(build, candidates, x, y, epi.Draws.all(table.index))
    assert tuned.index == 0 and jnp.array_equal(tuned.best["shift"], jnp.zeros(2))
    one = tune(lambda _: table, jnp.array([3.0]), x, y, epi.Draws.all(table.index))
    assert one.best == 3.0 and one.losses.mean.shape == (1,)


def test_bad_candidates_are_named():
    table = Table([[[1.0, 0.0], [0.0, 1.0]]])
    x, y, draws = jnp.arange(2), jnp.array([0, 1]), epi.Draws.all(table.index)
    with pytest.raises(ValueError, match="`temperature` must be finite and at least 1e-06; got -1.0"):
        tune(lambda t: epi.Tempered(table, t), jnp.array([1.0, -1.0]), x, y, draws)
    with pytest.raises(ValueError, match="`candidates` must not be empty"):
        tune(lambda t: epi.Tempered(table, t), jnp.zeros(0), x, y, draws)
    with pytest.raises(ValueError, match="`build` must return ENNs that differ in the values of arrays only"):
        tune(lambda t: Table(jnp.zeros((1 + int(t), 2, 2))), jnp.array([0.0, 1.0]), x, y, draws)
    with pytest.raises(ValueError, match="`enn` must not output NaN"):
        tune(lambda t: Table(jnp.log(t) * table.outputs), jnp.array([1.0, -1.0]), x, y, draws)
