"""Temperature and scale of any ENN in one call: known values are found, marginals are held, bad input is a sentence."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Table

import epinet_eqx as epi
from epinet_eqx import pitman_yor
from epinet_eqx.combinators import Mirrored, Tempered
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.metrics import log_losses
from epinet_eqx.tuning import calibrate

pytestmark = pytest.mark.once


class Spread(epi.AbstractENN):
    """Logits that are the input plus a Gaussian index, twice too sharp: its best scale and temperature are known."""

    index: GaussianIndex

    def __init__(self, num_classes):
        self.index = GaussianIndex(num_classes)

    def embed(self, x):
        return x

    def heads(self, embedding, zs):
        return 2.0 * (embedding[None, :] + zs)


def simulate(enn, scale, num_inputs, num_labels, key):
    """Return inputs, and counts of labels of `Spread` with another scale at temperature 2, one index for each pair."""
    x_key, z_key, label_key = jr.split(key, 3)
    x = jr.normal(x_key, (num_inputs, 3))
    logits = x + scale * jnp.repeat(jr.normal(z_key, (num_inputs // 2, 3)), 2, axis=0)
    labels = jr.categorical(label_key, logits[:, None, :], shape=(num_inputs, num_labels))
    return x, jnp.sum(jax.nn.one_hot(labels, 3, dtype=int), axis=1)


def test_scale_and_temperature_of_a_simulation_are_found_with_honest_errors(getkey):
    enn = Spread(3)
    draws = epi.Draws.sample(enn.index, 300, key=getkey(), chunk_size=100)
    scores = []
    for _ in range(3):
        x, counts = simulate(enn, 2.0, 200, 8, getkey())
        found = calibrate(
            enn,
            x,
            counts,
            draws,
            with_scale=lambda scale: Mirrored(enn, scale),
            max_marginal_loss_increase=math.inf,
            key=getkey(),
        )
        scores.append(
            [
                math.log(found.scale / 2.0) / (found.scale_error / found.scale),
                math.log(found.temperature / 2.0) / (found.temperature_error / found.temperature),
            ]
        )
    spread = np.sqrt(np.mean(np.square(scores), axis=0))
    # Three standard normal scores each: missed about once in a thousand.
    assert np.all(spread < 2.4), scores
    assert found.scale_error < 0.4 * found.scale and found.temperature_error < 0.4 * found.temperature
    assert found.joint.mean < found.joint_before.mean and found.joint.tau == 8
    assert f"scale {found.scale:.4g} ± " in str(found)


def test_losses_are_those_of_the_metrics(getkey):
    enn = Table(3.0 * jr.normal(getkey(), (4, 60, 3)))
    x, y = jnp.arange(60), jr.randint(getkey(), (60,), 0, 3)
    draws = epi.Draws.all(enn.index, batch_size=14)
    found = calibrate(enn, x, y, draws, tau=5, max_marginal_loss_increase=0.1, key=getkey())
    for own, joint, marginal in (
        (enn, found.joint_before, found.marginal_before),
        (Tempered(enn, found.temperature), found.joint, found.marginal),
        (found.enn, found.joint, found.marginal),
    ):
        expected = log_losses(own, x, y, draws, tau=5)
        np.testing.assert_allclose(joint.values, expected.joint.values, rtol=1e-4, atol=1e-4)
        pairs = expected.marginal.values.reshape(-1, 2).mean(axis=1)
        np.testing.assert_allclose(marginal.values, pairs, rtol=1e-4, atol=1e-5)
    assert joint.exact and joint.tau == 5


def test_marginals_are_held_or_free(getkey):
    x, counts = simulate(Spread(3), 1.0, 200, 1, getkey())
    y = jnp.argmax(counts, axis=1)
    enn = Spread(3)
    draws = epi.Draws.sample(enn.index, 100, key=getkey(), chunk_size=50)
    held, some, free = (
        calibrate(enn, x, y, draws, max_marginal_loss_increase=allowance, key=jr.key(0))
        for allowance in (0.0, 0.02, math.inf)
    )
    # Labels that repeat reward sharpness: the more of the marginal loss may be given away, the more of it is.
    assert held.marginal.mean <= some.marginal.mean <= held.marginal.mean + 0.02 + 1e-6 < free.marginal.mean
    assert held.joint.mean >= some.joint.mean >= free.joint.mean
    assert held.scale is None and held.scale_error is None
    # No temperature has a lower marginal loss.
    for factor in (0.9, 1.1):
        other = log_losses(Tempered(enn, factor * held.temperature), x, y, draws).marginal.mean
        assert other >= held.marginal.mean - 1e-6
    wide = calibrate(enn, x, y, draws, with_scale=lambda scale: Mirrored(enn, scale), key=jr.key(0))
    assert wide.marginal.mean <= held.marginal.mean + 1e-6 and wide.joint.mean <= held.joint.mean + 1e-6


def test_probabilities_are_labels_that_are_drawn(getkey):
    x = jr.normal(getkey(), (400, 3))
    enn = Table(5.0 * x[None])
    shares = jax.nn.softmax(x)
    found = calibrate(enn, jnp.arange(400), shares, epi.Draws.all(enn.index), key=getkey())
    assert abs(found.temperature - 5.0) < 4 * found.temperature_error < 2.0


ENN = Table(np.random.default_rng(0).normal(size=(2, 100, 3)).astype(np.float32))
DRAWS = epi.Draws.all(ENN.index)
X, Y = jnp.arange(100), jnp.asarray(np.random.default_rng(1).integers(0, 3, 100), dtype=int)


def mistaken(count):
    """Return an ENN that is sure of a wrong label at so many inputs."""
    return Table(2.0 * jax.nn.one_hot(jnp.where(count > X, (Y + 1) % 3, Y), 3)[None] * jnp.ones((2, 1, 1)))


BAD = {
    "too few": ({"x": X[:30], "y": Y[:30]}, "an even number of inputs, at least 40 to fit 1 parameters with; got 30"),
    "too few for two": (
        {"x": X[:60], "y": Y[:60], "with_scale": lambda scale: ENN},
        "at least 80 to fit 2 parameters",
    ),
    "odd": ({"x": X[:51], "y": Y[:51]}, "an even number of inputs"),
    "allowance": ({"max_marginal_loss_increase": -1.0}, "`max_marginal_loss_increase` must be at least 0; got -1"),
    "no number": ({"max_marginal_loss_increase": math.nan}, "`max_marginal_loss_increase` must be at least 0"),
    "tau": ({"tau": 0}, "`tau` must be a positive integer"),
    "not a class": ({"y": jnp.full(100, 3)}, "`y` must hold classes from 0 to 2"),
    "sum": ({"y": jnp.full((100, 3), 0.5)}, "`y` must hold probabilities that sum to 1 for each input; got 1.5"),
    "scale": ({"with_scale": lambda scale: Table(jnp.zeros((2, 100, 3 + int(scale))))}, "`with_scale` must return"),
    "worse": ({"enn": mistaken(5), "with_scale": lambda scale: mistaken(40)}, "`with_scale` .* reach a marginal"),
    "impossible label": (
        {"enn": Table(ENN.outputs.at[:, 7, int(Y[7])].set(-jnp.inf))},
        "`enn` must give every label of `y` a positive probability; got infinite losses of 1 of 50 pairs",
    ),
    "all predicted": ({"y": jnp.argmax(ENN.outputs[0], axis=1), "enn": Table(ENN.outputs[:1])}, "a best temperature"),
    "one class": ({"enn": Table(jnp.zeros((2, 100, 1))), "y": jnp.zeros(100, int)}, "at least 2 classes; got 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_sentence(name, as_user):
    changed, message = BAD[name]
    arguments = {"enn": ENN, "x": X, "y": Y, **changed}
    draws = epi.Draws.all(arguments["enn"].index)
    with pytest.raises(ValueError, match=message):
        calibrate(draws=draws, key=jr.key(0), **arguments)


def test_a_head_is_sent_to_its_own_fit(getkey):
    x = jr.normal(getkey(), (100, 3))
    enn = pitman_yor.attach(lambda x: (x, x), x, key=getkey())
    with pytest.raises(ValueError, match=r"use `pitman_yor.calibrate`"):
        calibrate(enn, x, Y, epi.Draws.sample(enn.index, 3, key=getkey()), key=getkey())
