"""Joint predictions of different inputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

import epinet_eqx as epi
from epinet_eqx import pitman_yor
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.metrics import joint_gain, near_pairs
from epinet_eqx.networks import MLP


class Constant(eqx.Module):
    """The same output at every input."""

    logits: Array

    def __call__(self, x):
        return self.logits


def test_near_pairs_are_mutual_nearest_neighbors(getkey):
    features = np.asarray(jr.normal(getkey(), (1500, 3)))
    found = near_pairs(features)
    distances = np.linalg.norm(features[:, None] - features[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    nearest = distances.argmin(axis=1)
    expected = {(i, j) for i, j in enumerate(nearest.tolist()) if nearest[j] == i and i < j}
    assert set(map(tuple, found.tolist())) == expected
    assert len(np.unique(found)) == found.size


def test_gain_of_two_particles_by_hand():
    # Particle 0 says class 0 of both inputs with probability 0.9, particle 1 with 0.2.
    logits = jnp.log(jnp.asarray([[0.9, 0.1], [0.2, 0.8]]))
    ensemble = Ensemble(Constant(logits))
    gain = joint_gain(ensemble, jnp.zeros((2, 1)), jnp.asarray([0, 0]), epi.Draws.all(ensemble.index))
    expected = np.log((0.9**2 + 0.2**2) / 2) - 2 * np.log((0.9 + 0.2) / 2)
    assert float(gain.mean) == pytest.approx(expected, rel=1e-5) and expected > 0.1


def test_gain_of_what_has_no_dependence_is_zero(getkey):
    network, x = MLP(3, 4, (8,), key=getkey()), 2 * jr.normal(getkey(), (8, 3))
    y = jnp.asarray([0, 1, 2, 3, 0, 1, 2, 3])
    one = Deterministic(network)
    np.testing.assert_allclose(joint_gain(one, x, y, epi.Draws.all(one.index)).values, 0, atol=1e-5)
    # Coherent on each input, however short its reach: nothing is known of pairs, but within Monte Carlo error.
    enn = pitman_yor.attach(network, x, alpha=0.5, length_scale=1e-3, num_frequencies=200, key=getkey())
    draws = epi.Draws.sample(enn.index, 20_000, key=getkey(), chunk_size=500)
    # Labels that are likely: the logarithm of a small average is noisy.
    y = jnp.argmax(jax.vmap(network)(x), axis=1)
    np.testing.assert_allclose(joint_gain(enn, x, y, draws).values, 0, atol=0.1)
    same = joint_gain(enn, jnp.repeat(x, 2, axis=0), jnp.repeat(y, 2), draws)
    # The same input twice with the same label: knowledge there shows, and it is that of the two-label table.
    w = jnp.exp(-pitman_yor.log_losses(enn, x, y).marginal.values)
    np.testing.assert_allclose(same.values, jnp.log((0.5 + 0.5 * w) / w), atol=0.1)


BAD = {
    "one input": (jnp.zeros((1, 3)), "a row for each of at least 2 inputs"),
    "vector": (jnp.zeros(5), "a row for each of at least 2 inputs"),
    "not finite": (jnp.full((3, 2), jnp.nan), "`features` must be finite"),
}


@pytest.mark.parametrize("name", BAD)
def test_near_pairs_says_what_is_wrong(name, as_user):
    features, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        near_pairs(features)
