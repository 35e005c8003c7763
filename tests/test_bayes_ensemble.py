"""Ensembles as ENNs: identities with their particles, stacking, prior functions, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import Frozen, named_keys, trainable_mask
from epinet_eqx.bayes import Deterministic, Ensemble, dropout_mlp
from epinet_eqx.combinators import Prior, WithPrior
from epinet_eqx.losses import Batch, BernoulliBootstrap, CrossEntropy
from epinet_eqx.networks import MLP, Linear
from epinet_eqx.training import NonFiniteLossError, fit, fit_ensemble

pytestmark = pytest.mark.once


def make_particles(key, num_particles=5, in_dim=3, hidden=(8,)):
    return [MLP(in_dim, 4, hidden, key=particle_key) for particle_key in jr.split(key, num_particles)]


def test_deterministic_ignores_its_index(getkey):
    network, x = MLP(3, 4, (8,), key=getkey()), jr.normal(getkey(), (3,))
    enn = Deterministic(network)
    assert enn.index.num_particles == 1
    assert jnp.array_equal(enn(x, jnp.array(0)), network(x))
    assert jnp.array_equal(enn.heads(enn.embed(x), jnp.zeros(6, int)), jnp.tile(network(x)[None], (6, 1)))


def test_index_picks_the_particle(getkey):
    particles, x = make_particles(getkey()), jr.normal(getkey(), (3,))
    enn = Ensemble.of(particles)
    assert enn.index.num_particles == 5
    for number, particle in enumerate(particles):
        assert jnp.allclose(enn(x, jnp.array(number)), particle(x), atol=1e-6)


@pytest.mark.parametrize("num_samples", [2, 5, 9])
def test_heads_is_the_mapped_head(num_samples, getkey):
    enn, x = Ensemble.of(make_particles(getkey())), jr.normal(getkey(), (3,))
    zs = enn.index.sample_many(num_samples, key=getkey())
    assert jnp.allclose(enn.heads(x, zs), jax.vmap(lambda z: enn.head(x, z))(zs), atol=1e-6)


def test_many_indices_cost_no_more_than_the_particles(getkey, optimized):
    enn, x = Ensemble.of(make_particles(getkey(), hidden=(16, 16))), jr.normal(getkey(), (3,))

    def flops(num_samples):
        zs = jnp.zeros(num_samples, int)
        return jax.jit(lambda x, zs: enn.heads(x, zs)).lower(x, zs).compile().cost_analysis()["flops"]

    assert flops(40) < 1.2 * flops(5)


def test_trunk_runs_once_for_all_particles(getkey):
    trunk, particles = Linear(3, 6, key=getkey()), make_particles(getkey(), in_dim=6)
    enn, x = Ensemble.of(particles, trunk), jr.normal(getkey(), (3,))
    assert jnp.allclose(enn.embed(x), trunk(x))
    assert jnp.allclose(enn(x, jnp.array(2)), particles[2](trunk(x)), atol=1e-6)


def test_list_of_modules_equals_stacked_modules(getkey):
    keys = jr.split(getkey(), 5)
    stacked = Ensemble(eqx.filter_vmap(lambda key: MLP(3, 4, (8,), key=key))(keys))
    listed = Ensemble.of([MLP(3, 4, (8,), key=jr.clone(key)) for key in keys])
    assert eqx.tree_equal(stacked, listed, rtol=1e-6, atol=1e-6)


def test_any_equinox_module_can_be_a_particle(getkey):
    particles = [eqx.nn.MLP(3, 4, 8, 1, key=key) for key in jr.split(getkey(), 3)]
    enn, x = Ensemble.of(particles), jr.normal(getkey(), (3,))
    outputs = enn.heads(enn.embed(x), enn.index.support())
    assert jnp.allclose(outputs, jnp.stack([particle(x) for particle in particles]), atol=1e-6)


def make_plus_particle(network, prior, scale):
    return WithPrior(Deterministic(network), Prior(Deterministic(prior), scale))


def make_plus(key, scale=0.7, num_particles=3):
    def particle(particle_key):
        network_key, prior_key = jr.split(particle_key)
        return make_plus_particle(MLP(3, 4, (8,), key=network_key), MLP(3, 4, (5,), key=prior_key), scale)

    return Ensemble(eqx.filter_vmap(particle)(jr.split(key, num_particles)))


def test_prior_is_added_with_its_scale_and_is_frozen(getkey):
    network, prior, x = MLP(3, 4, (8,), key=getkey()), MLP(3, 4, (5,), key=getkey()), jr.normal(getkey(), (3,))
    particle = make_plus_particle(network, prior, 0.7)
    assert jnp.allclose(particle(x, jnp.array(0)), network(x) + 0.7 * prior(x), atol=1e-6)

    enn = make_plus(getkey())
    gradient = eqx.filter_grad(lambda enn: jnp.sum(jnp.square(enn.heads(x, enn.index.support()))))(enn)
    assert all(not jnp.any(leaf) for leaf in jax.tree.leaves(gradient.particles.prior))
    assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(gradient.particles.enn))
    mask = trainable_mask(enn).particles
    assert not any(jax.tree.leaves(mask.prior)) and all(jax.tree.leaves(mask.enn))


def test_each_particle_has_a_prior_of_its_own(getkey):
    enn, x = make_plus(getkey(), scale=2.0), jr.normal(getkey(), (3,))
    without = eqx.tree_at(lambda enn: enn.particles.prior.scale, enn, Frozen(jnp.zeros(3)))
    zs = enn.index.support()
    priors = eqx.filter_vmap(lambda prior: prior.network(x))(enn.particles.prior.enn.content)
    assert jnp.allclose(enn.heads(x, zs) - without.heads(x, zs), 2.0 * priors, atol=1e-5)
    assert not jnp.allclose(priors[0], priors[1])


def test_sweeping_the_prior_scale_compiles_once(getkey):
    traces = 0
    x, key = jr.normal(getkey(), (3,)), getkey()

    @eqx.filter_jit
    def outputs(enn):
        nonlocal traces
        traces += 1
        return enn.heads(x, enn.index.support())

    for scale in (0.0, 1.0, 3.0):
        outputs(make_plus(jr.clone(key), scale=scale))
    assert traces == 1


def test_particles_of_different_structure_are_refused(getkey):
    first = MLP(3, 4, (8,), key=getkey())
    with pytest.raises(ValueError, match=r"`particles\[1\]\.layers\[0\]\.weight` must be .*\(8, 3\).* got .*\(9, 3\)"):
        Ensemble.of([first, MLP(3, 4, (9,), key=getkey())])
    with pytest.raises(ValueError, match=r"`particles\[1\]` must have no leaf `\.layers\[2\]\.bias` .*; got .*\(4,\)"):
        Ensemble.of([first, MLP(3, 4, (8, 8), key=getkey())])
    with pytest.raises(ValueError, match=r"`particles\[1\]` must have a leaf `\.layers\[1\]\.bias` .*; got none"):
        Ensemble.of([first, MLP(3, 4, (), key=getkey())])
    with pytest.raises(ValueError, match=r"`particles\[1\]` must have the static fields of the first particle"):
        Ensemble.of([first, MLP(3, 4, (8,), activation=jnp.tanh, key=getkey())])
    with pytest.raises(ValueError, match=r"`particles\[1\]\.activation` must be"):
        Ensemble.of([eqx.nn.MLP(3, 4, 8, 1, activation=f, key=getkey()) for f in (jax.nn.relu, jnp.tanh)])


def test_wrong_numbers_are_refused(getkey):
    with pytest.raises(ValueError, match="`particles` must hold at least one module; got none"):
        Ensemble.of([])
    with pytest.raises(ValueError, match="`particles` must hold arrays with a leading axis"):
        Ensemble(jax.nn.relu)
    with pytest.raises(
        ValueError, match=r"`particles\[1\]\.bias` must be a JAX array; got a NumPy array of shape \(4,\)"
    ):
        first = Linear(3, 4, key=getkey())
        Ensemble.of([first, eqx.tree_at(lambda linear: linear.bias, first, np.zeros(4))])
    enn = Ensemble.of(make_particles(getkey()))
    uneven = eqx.tree_at(lambda p: p.layers[1].bias, enn.particles, jnp.zeros((4, 4)))
    with pytest.raises(ValueError, match=r"`particles\.layers\[1\]\.bias` must have as many particles .* 5; got 4"):
        Ensemble(uneven)
    with pytest.raises(ValueError, match=r"`particles\.layers\[1\]\.bias` must have a leading axis"):
        Ensemble(eqx.tree_at(lambda p: p.layers[1].bias, enn.particles, jnp.zeros(())))
    with pytest.raises(ValueError, match=r"`zs` must hold particles from 0 to 4; got \[5\]"):
        enn(jnp.zeros(3), jnp.array(5))


def test_bad_priors_are_refused(getkey, as_user):
    network = MLP(3, 4, (8,), key=getkey())
    with pytest.raises(ValueError, match=r"`scale` must be finite and at least 0; got -1\.0"):
        make_plus_particle(network, network, -1.0)
    with pytest.raises(ValueError, match="`prior` must have as many outputs as `enn`, 4; got 2"):
        make_plus_particle(network, MLP(3, 2, (8,), key=getkey()), 1.0)(jnp.zeros(3), jnp.array(0))
    with pytest.raises(ValueError, match="`enn` must be an ENN .*; got MLP"):
        Prior(network)
    with pytest.raises(ValueError, match="`particles` must be networks, or ENNs with one value .*MCDropout"):
        Ensemble(dropout_mlp(3, 4, key=getkey()))


def make_data(key):
    x_key, y_key = jr.split(key)
    return Batch.of(jr.normal(x_key, (12, 3)), jr.randint(y_key, (12,), 0, 4))


def make_particle(key):
    return MLP(3, 4, (8,), key=key)


def make_prior(key):
    return MLP(3, 4, (5,), key=key)


OPTIONS = dict(num_steps=7, batch_size=5, block_size=7, progress=False)
# One program for all tests of these.
FULL_BATCH = dict(OPTIONS, batch_size=None)


def test_particles_are_those_trained_one_after_the_other(getkey):
    data, key = make_data(getkey()), getkey()
    bootstrap_key = getkey()
    loss = CrossEntropy(l2=0.01, bootstrap=BernoulliBootstrap(0.4, key=bootstrap_key))
    options = dict(prior=make_prior, prior_scale=3.0, **OPTIONS)
    enn, _, history = fit_ensemble(make_particle, data, loss, num_particles=3, key=key, **options)
    assert history.losses.shape == (7, 3)
    particle_key, prior_key, train_key = named_keys(key, "particles", "priors", "train")
    alone = []
    make = eqx.filter_jit(lambda *keys: make_plus_particle(make_particle(keys[0]), make_prior(keys[1]), 3.0))
    for k in range(3):
        network = make(jr.fold_in(particle_key, k), jr.fold_in(prior_key, k))
        own = CrossEntropy(l2=0.01, bootstrap=BernoulliBootstrap(0.4, key=jr.fold_in(bootstrap_key, k)))
        result = fit(network, data, own, num_index_samples=1, key=jr.fold_in(train_key, k), **OPTIONS)
        alone.append(result.enn)
        assert jnp.allclose(history.losses[:, k], result.history.losses, atol=1e-5)
    assert eqx.tree_equal(enn, Ensemble.of(alone), rtol=1e-5, atol=1e-5)
    # Neither a step nor the penalty has moved the priors by a bit.
    priors = eqx.filter_vmap(lambda k: make_prior(jr.fold_in(prior_key, k)))(jnp.arange(3))
    assert eqx.tree_equal(enn.particles.prior.enn.content.network, priors)
    assert jnp.array_equal(enn.particles.prior.scale.content, jnp.full(3, 3.0))
    # The particles differ, and training has moved them.
    assert not jnp.allclose(history.losses[:, 0], history.losses[:, 1])
    untrained = make_particle(jr.fold_in(particle_key, 0))
    assert not jnp.allclose(alone[0].enn.network.layers[0].weight, untrained.layers[0].weight, atol=1e-4)


def test_particles_from_one_place_on_all_data_stay_equal(getkey):
    # Nothing else tells them apart where the loss has no bootstrap.
    data, network = make_data(getkey()), make_particle(getkey())
    enn = fit_ensemble(lambda _: network, data, CrossEntropy(), num_particles=2, key=getkey(), **FULL_BATCH).enn
    for leaf in jax.tree.leaves(eqx.filter(enn.particles, eqx.is_array)):
        assert jnp.array_equal(leaf[0], leaf[1])
    assert not jnp.allclose(enn.particles.layers[0].weight[0], network.layers[0].weight, atol=1e-4)


def test_bad_training_is_refused(getkey):
    data, key = make_data(getkey()), getkey()
    with pytest.raises(ValueError, match="`num_particles` must be a positive integer; got 0"):
        fit_ensemble(make_particle, data, CrossEntropy(), num_particles=0, key=key, **FULL_BATCH)
    with pytest.raises(ValueError, match=r"`prior_scale` must be finite and at least 0; got -3\.0"):
        fit_ensemble(make_particle, data, CrossEntropy(), num_particles=2, prior_scale=-3.0, key=key, **FULL_BATCH)
    with pytest.raises(NonFiniteLossError, match="2 of 2 members"):
        fit_ensemble(make_particle, data, CrossEntropy(l2=1e38), num_particles=2, key=key, **FULL_BATCH)
