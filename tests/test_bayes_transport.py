"""Transport maps: every wrapper is one, distributions are the BNN's, bad maps; and `as_enn`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.stats import kstest

from epinet_eqx import trainable_mask
from epinet_eqx.bayes import (
    SWAG,
    BayesByBackprop,
    Deterministic,
    Ensemble,
    LinearHypermodel,
    SWAGState,
    Transport,
    as_enn,
    from_samples,
    split_parameters,
)
from epinet_eqx.indices import GaussianIndex, KeyIndex, ParticleIndex, ScaledGaussianIndex
from epinet_eqx.networks import MLP, Linear

pytestmark = pytest.mark.once


@eqx.filter_jit
def _network(key):
    return MLP(3, 4, (5,), key=key)


def _outputs(enn, x, zs):
    return eqx.filter_jit(lambda x, zs: jax.vmap(lambda x: enn.heads(enn.embed(x), zs))(x))(x, zs)


def _swag(network, key):
    state = SWAGState.init(network, 2)
    for number in range(3):
        state = state.update(_network(jr.fold_in(key, number)))
    return SWAG(state)


# Each wrapper, and the map and the `nu` by which Theorem 3 expresses it.
WRAPPERS = {
    "deterministic": (lambda network, key: Deterministic(network), lambda enn, z: enn.network),
    "ensemble": (
        lambda network, key: Ensemble(eqx.filter_vmap(_network)(jr.split(key, 3))),
        lambda enn, z: jax.tree.map(lambda leaf: leaf[z], enn.particles),
    ),
    "bayes_by_backprop": (
        lambda network, key: BayesByBackprop(network, sigma_init=0.3),
        lambda enn, z: enn.skeleton.build(enn.mean + jax.nn.softplus(enn.rho) * z),
    ),
    "linear_hypermodel": (
        lambda network, key: LinearHypermodel(network, ScaledGaussianIndex(6), key=key),
        lambda enn, z: enn.skeleton.build(enn.weight @ z + enn.bias),
    ),
    "swag": (
        _swag,
        lambda enn, z: enn.skeleton.build(
            enn.mean.value + enn.std.value * z[:-2] + jnp.tensordot(z[-2:], enn.factor.value, axes=1)
        ),
    ),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_each_wrapper_is_a_transport(name, getkey):
    # Equal at every index, and so equal in distribution jointly at all inputs, Eq. (3).
    make, transport_map = WRAPPERS[name]
    network = _network(getkey())
    enn = eqx.filter_jit(make)(network, getkey())
    transport = Transport(network, transport_map, enn.index, nu=enn)
    x, zs = jr.normal(getkey(), (2, 3)), enn.index.sample_many(4, key=getkey())
    np.testing.assert_allclose(_outputs(transport, x, zs), _outputs(enn, x, zs), rtol=1e-4, atol=1e-5)


def test_samples_have_the_distribution_of_the_bnn(getkey):
    # Independent uniform weights, by the map from the proof of Theorem 3: the normal distribution function.
    base = eqx.nn.Linear(2, 1, use_bias=False, key=getkey())
    nu = jnp.array([[1.0, 3.0]])
    enn = Transport(
        base,
        lambda nu, z: eqx.tree_at(lambda b: b.weight, base, nu * norm.cdf(z)[None, :]),
        GaussianIndex(2),
        nu=nu,
    )
    outputs = _outputs(enn, jnp.eye(2), enn.index.sample_many(2000, key=getkey()))[..., 0]
    for values, high in zip(np.asarray(outputs), (1, 3), strict=True):
        assert kstest(values / high, "uniform").pvalue > 0.01
    assert abs(np.corrcoef(outputs)[0, 1]) < 0.07
    assert kstest(np.abs(outputs[0] / 1 - outputs[1] / 3), lambda d: 1 - (1 - d) ** 2).pvalue > 0.01


def test_any_index_and_any_tree(getkey):
    # Weights that are kept or dropped, by a random key; `nu` is a dictionary, and the result a tree of parameters.
    network = Linear(3, 2, key=getkey())

    def drop(nu, z):
        kept = jr.bernoulli(jr.fold_in(z, 0), nu["keep"], network.weight.shape)
        return eqx.filter(eqx.tree_at(lambda n: n.weight, network, nu["w"] * kept.astype(float)), eqx.is_array)

    enn = Transport(network, drop, KeyIndex(), nu={"w": network.weight, "keep": 0.5})
    x, zs = jnp.ones(3), enn.index.sample_many(3, key=getkey())
    kept = jax.vmap(lambda z: jr.bernoulli(jr.fold_in(z, 0), 0.5, (2, 3)))(zs)
    expected = np.asarray(network.weight)[None] * np.asarray(kept)
    np.testing.assert_allclose(enn.heads(enn.embed(x), zs), expected.sum(axis=-1), rtol=1e-5, atol=1e-6)


def test_what_is_trained_is_nu_and_the_map(getkey):
    network = _network(getkey())
    mean, skeleton = split_parameters(network)

    class Shift(eqx.Module):
        shift: jax.Array

        def __call__(self, nu, z):
            return skeleton.unflatten(nu + self.shift * z)

    enn = Transport(network, Shift(jnp.ones_like(mean)), GaussianIndex(mean.size), nu=mean)
    trainable = jax.tree.leaves(eqx.filter(enn, trainable_mask(enn)))
    assert [leaf.shape for leaf in trainable] == [mean.shape, mean.shape]
    gradient = eqx.filter_grad(lambda enn: jnp.sum(enn(jnp.ones(3), jnp.ones(mean.size))))(enn)
    assert np.any(gradient.nu) and np.any(gradient.map.shift)


def test_maps_must_return_the_parameters_of_the_base(getkey):
    network, index = _network(getkey()), ParticleIndex(2)
    missing = eqx.tree_at(lambda n: n.layers[1].bias, network, None)
    longer = eqx.tree_at(lambda n: n.layers[1].bias, network, jnp.zeros(7))
    deeper = MLP(3, 4, (5, 4), key=getkey())
    bad = {
        r"`map\(nu, z\)` must have a floating-point array `\.layers\[0\]\.weight`; got only \[\]": None,
        r"`map\(nu, z\)` must have a floating-point array `\.layers\[1\]\.bias`": missing,
        r"`map\(nu, z\)\.layers\[1\]\.bias` must have shape \(4,\); got \(7,\)": longer,
        r"`map\(nu, z\)` must have no arrays but .*; got also \['\.layers\[2\]\.bias', ": deeper,
    }
    for message, tree in bad.items():
        with pytest.raises(ValueError, match=message):
            Transport(network, lambda nu, z: nu, index, nu=tree)


def test_as_enn_finds_the_wrapper(getkey):
    networks = [_network(getkey()) for _ in range(2)]
    stacked = eqx.filter_vmap(_network)(jr.split(getkey(), 3))
    enn = Deterministic(networks[0])
    assert as_enn(enn) is enn
    assert isinstance(as_enn(networks[0]), Deterministic)
    assert isinstance(as_enn(eqx.nn.Linear(2, 3, key=getkey())), Deterministic)
    for several in (networks, tuple(networks)):
        assert eqx.tree_equal(as_enn(several), Ensemble.of(networks))
    samples = from_samples(networks[0], stacked)
    assert eqx.tree_equal(as_enn((networks[0], stacked)), samples)
    assert eqx.tree_equal(as_enn((networks[0], eqx.filter(stacked, eqx.is_array))), samples)
    assert eqx.tree_equal(as_enn((networks[0], jax.tree.map(np.asarray, stacked))), samples)
    state = SWAGState.init(networks[0], 2).update(networks[0]).update(networks[1])
    assert isinstance(as_enn(state), SWAG)


def test_as_enn_says_what_it_takes(getkey):
    network = _network(getkey())
    for obj, found in (
        (3, "int"),
        (lambda x: x, "function"),
        ([], r"list of \[\]"),
        ([network, 1], r"list of \['MLP', 'int'\]"),
        ([Deterministic(network)] * 2, r"list of \['Deterministic', 'Deterministic'\]"),
    ):
        with pytest.raises(TypeError, match=rf"`obj` must be an ENN, a network .*; got {found}\."):
            as_enn(obj)
    with pytest.raises(ValueError, match=r"`particles\[1\]"):
        as_enn([network, MLP(3, 4, (6,), key=getkey())])
    with pytest.raises(ValueError, match="`samples`"):
        as_enn((network, {"weight": jnp.ones((3, 2))}))
