"""SWAG: the moments of a trajectory, the covariance of its samples, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import trainable_mask
from epinet_eqx.bayes import SWAG, SWAGState, split_parameters
from epinet_eqx.networks import MLP, Linear

pytestmark = pytest.mark.once


def _collect(module, trajectory, rank):
    """Return the state after a trajectory of parameter vectors, collected by one scan."""
    skeleton = split_parameters(module)[1]
    update = lambda state, vector: (state.update(skeleton.build(vector)), None)  # noqa: E731
    return jax.jit(lambda state, vectors: jax.lax.scan(update, state, vectors)[0])(
        SWAGState.init(module, rank), trajectory
    )


@pytest.mark.parametrize("num_updates", [3, 4, 9])  # fewer than the rank, as many, and more
def test_samples_have_the_covariance_of_the_paper(num_updates, getkey):
    module, rank = Linear(2, 2, key=getkey()), 4
    trajectory = jr.normal(getkey(), (num_updates, 6)) * jnp.arange(1.0, 7.0)[None, :]
    enn = SWAG(_collect(module, trajectory, rank))
    assert enn.index.size == 6 + rank

    path = np.asarray(trajectory, dtype=np.float64)
    running = np.cumsum(path, axis=0) / np.arange(1, num_updates + 1)[:, None]
    deviations = (path - running)[-rank:]
    expected = 0.5 * (np.diag(path.var(axis=0)) + deviations.T @ deviations / (len(deviations) - 1))
    # The parameters are affine in the index, so the identity matrix of indices shows the whole map.
    at = jax.jit(jax.vmap(lambda z: split_parameters(enn.network_at(z))[0]))
    mean = np.asarray(at(jnp.zeros((1, enn.index.size))))[0]
    columns = np.asarray(at(jnp.eye(enn.index.size))) - mean[None, :]
    np.testing.assert_allclose(mean, path.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(columns.T @ columns, expected, rtol=1e-3, atol=1e-4)


def test_a_small_variance_survives_a_large_mean(getkey):
    trajectory = 1000 + jr.normal(getkey(), (50, 6))
    state = _collect(Linear(2, 2, key=getkey()), trajectory, 2)
    np.testing.assert_allclose(state.squares / 50, np.asarray(trajectory, dtype=np.float64).var(axis=0), rtol=0.01)


def test_nothing_is_trainable_and_the_network_keeps_its_structure(getkey):
    module = MLP(3, 4, (5,), key=getkey())
    state = SWAGState.init(module, 2).update(module).update(module)
    enn = SWAG(state)
    assert not any(jax.tree.leaves(trainable_mask(enn)))
    # A trajectory that stands still has no spread at all.
    x = jr.normal(getkey(), (3,))
    np.testing.assert_allclose(enn(x, enn.index.sample(key=getkey())), module(x), rtol=1e-5, atol=1e-6)


def test_bad_input(getkey):
    module = Linear(2, 2, key=getkey())
    state = SWAGState.init(module, 3)
    with pytest.raises(ValueError, match="`rank` must be at least 2; got 1"):
        SWAGState.init(module, 1)
    with pytest.raises(ValueError, match="`state` must have seen at least 2 updates; got 1"):
        SWAG(state.update(module))
    with pytest.raises(ValueError, match=r"`parameters\.weight` must have shape \(2, 2\); got \(3, 2\)"):
        state.update(Linear(2, 3, key=getkey()))
    diverged = eqx.tree_at(lambda m: m.bias, module, jnp.full(2, jnp.nan))
    with pytest.raises(ValueError, match="`state` must be finite; got 2 non-finite of 6 values"):
        SWAG(state.update(module).update(diverged))
