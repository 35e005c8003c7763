"""The odd part of an epinet around its base."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from epinet_eqx.combinators import Mirrored
from epinet_eqx.epinet import Epinet, MLPEpinet, attach
from epinet_eqx.indices import DirichletIndex
from epinet_eqx.networks import MLP


@pytest.fixture
def enn(getkey):
    base = MLP(3, 4, (8,), key=getkey())
    return attach(base, out_size=4, index_dim=5, key=getkey())


def test_mean_over_mirrored_indices_is_the_base(enn, getkey):
    x, zs = jr.normal(getkey(), (3,)), jr.normal(getkey(), (6, 5))
    mirrored = Mirrored(enn, 2.0)
    embedding = mirrored.embed(x)
    outputs = mirrored.heads(embedding, jnp.concatenate([zs, -zs]))
    assert jnp.allclose(outputs.mean(axis=0), embedding.base, atol=1e-5)
    # The epinet itself has another mean: there is something to mirror.
    assert not jnp.allclose(
        enn.heads(embedding.enn, jnp.concatenate([zs, -zs])).mean(axis=0), embedding.base, atol=1e-3
    )


def test_spread_is_proportional_to_the_scale_and_sweeping_it_traces_once(enn, getkey):
    x, z = jr.normal(getkey(), (3,)), jr.normal(getkey(), (5,))
    traces = []

    @jax.jit
    def spread(scale):
        traces.append(scale)
        mirrored = Mirrored(enn, scale)
        return mirrored(x, z) - mirrored.embed(x).base

    assert jnp.allclose(spread(3.0), 3 * spread(1.0), atol=1e-5)
    assert jnp.array_equal(spread(0.0), jnp.zeros(4))
    assert len(traces) == 1


def test_bad_input_is_named(enn, getkey):
    with pytest.raises(ValueError, match="`scale` must be .*; got -1"):
        Mirrored(enn, -1.0)
    other = Epinet(enn.base, MLPEpinet(8, 5, 4, hidden=(), key=getkey()), (), DirichletIndex(5))
    with pytest.raises(ValueError, match="`enn` must have an index that is symmetric about 0.*; got DirichletIndex"):
        Mirrored(other)
