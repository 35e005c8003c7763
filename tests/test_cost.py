"""Cost: parameters by count, operations by XLA's count."""

import jax.numpy as jnp
import pytest

import epinet_eqx as epi
from epinet_eqx import cost
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once


def affine(key):
    return MLP(64, 32, (), feature_layers=(0,), key=key)


def test_parameters_are_split_into_trainable_and_frozen(getkey, optimized):
    enn = epi.attach(affine(getkey()), out_size=32, index_dim=5, key=getkey())
    measured = cost(enn, jnp.zeros(64))
    learnable = epi.count_parameters(enn.learnable)
    assert measured.trainable_parameters == learnable
    # The base, a prior of the learnable's architecture, and its scale.
    assert measured.frozen_parameters == 64 * 32 + 32 + learnable + 1
    assert measured.parameters == measured.trainable_parameters + measured.frozen_parameters


def test_operations_of_an_affine_network(getkey, optimized):
    # A multiplication and an addition per weight; XLA may count the addition of the bias or fuse it.
    measured = cost(Deterministic(affine(getkey())), jnp.zeros(64), batch_size=8)
    assert 2 * 64 * 32 <= measured.flops <= 2 * 64 * 32 + 2 * 32


def test_a_conventional_network_costs_one_forward_whatever_the_samples(getkey, optimized):
    enn = Deterministic(affine(getkey()))
    assert cost(enn, jnp.zeros(64), num_samples=100).flops < 1.1 * cost(enn, jnp.zeros(64)).flops + 64 * 100


def test_particles_and_indices_are_counted(getkey, optimized):
    ensemble = Ensemble.of([affine(getkey()) for _ in range(3)])
    one, all_three = cost(ensemble, jnp.zeros(64)), cost(ensemble, jnp.zeros(64), num_samples=3)
    assert 2.5 < all_three.flops / one.flops < 3.5
    assert all_three.embed.flops == 0 and one.parameters == 3 * (64 * 32 + 32)


def test_the_contraction_is_cheaper_than_mapping_the_head(getkey, optimized):
    enn = epi.attach(lambda x: (x[:50], x), out_size=50, index_dim=10, example=jnp.zeros(64), key=getkey())
    single = cost(enn, jnp.zeros(64), batch_size=32).heads.flops
    many = cost(enn, jnp.zeros(64), batch_size=32, num_samples=100).heads.flops
    # One at a time, 100 indices cost 100 contractions per input; a batch shares them.
    assert many < 100 * single * 1.1
    alone = cost(enn, jnp.zeros(64), num_samples=100).heads.flops
    assert many < alone / 5


def test_bad_sizes_are_sentences(getkey):
    enn = Deterministic(affine(getkey()))
    with pytest.raises(ValueError, match="`num_samples` must be a positive integer; got 0"):
        cost(enn, jnp.zeros(64), num_samples=0)
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer; got -1"):
        cost(enn, jnp.zeros(64), batch_size=-1)
