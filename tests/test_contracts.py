"""What every ENN must do: one table of all of them through every invariant."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest
from enns import CASES, IN_DIM, NUM_CLASSES

import epinet_eqx as epi
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.training import EpistemicObjective, init_state, train_step

pytestmark = pytest.mark.once


@pytest.fixture
def enn(request, getkey):
    return CASES[request.param](getkey())


every_enn = pytest.mark.parametrize("enn", CASES, indirect=True)


def same_arrays(first, second):
    """Return whether two trees hold bit-identical arrays."""
    return eqx.tree_equal(eqx.filter(first, eqx.is_array), eqx.filter(second, eqx.is_array))


@every_enn
def test_forward_is_one_function_however_it_is_called(enn, getkey):
    xs = jr.normal(getkey(), (2, IN_DIM))
    zs = enn.index.sample_many(3, key=getkey())
    traces = []

    @eqx.filter_jit
    def mapped(enn, xs, zs):
        traces.append(1)
        embeddings = jax.vmap(enn.embed)(xs)
        return jax.vmap(lambda e: jax.vmap(lambda z: enn.head(e, z))(zs))(embeddings)

    @eqx.filter_jit
    def contracted(enn, xs, zs):
        return jax.vmap(enn.heads, in_axes=(0, None))(jax.vmap(enn.embed)(xs), zs)

    outputs = mapped(enn, xs, zs)
    assert outputs.shape == (2, 3, NUM_CLASSES) and bool(jnp.all(jnp.isfinite(outputs)))
    # `heads` is `head` mapped; stages compose to the call; a second z compiles nothing.
    assert jnp.allclose(contracted(enn, xs, zs), outputs, atol=1e-5)
    assert jnp.allclose(enn(xs[1], zs[2]), outputs[1, 2], atol=1e-5)
    mapped(enn, xs, enn.index.sample_many(3, key=getkey()))
    assert len(traces) == 1


@every_enn
def test_a_step_moves_what_is_trainable_and_nothing_else(enn, getkey):
    mask = epi.trainable_mask(enn)
    # adamw decays even what has no gradient: frozen parts must be out of its reach.
    optimizer = optax.adamw(1e-2, weight_decay=0.1)
    if not any(jax.tree.leaves(mask)):  # Fitted, not trained: Laplace, SWAG.
        with pytest.raises(ValueError, match="`model` must have something to train"):
            init_state(enn, optimizer, key=getkey())
        return
    state = init_state(enn, optimizer, key=getkey())
    batch = Batch.of(jr.normal(getkey(), (4, IN_DIM)), jnp.arange(4))
    step = eqx.filter_jit(
        lambda state: train_step(
            state, batch, EpistemicObjective(CrossEntropy(l2=1e-3), num_index_samples=8), optimizer
        )
    )
    after, metrics = step(state)
    assert bool(metrics["ok"])
    frozen = eqx.filter(enn, mask, inverse=True)
    assert same_arrays(eqx.filter(after.model, mask, inverse=True), frozen)
    before_leaves = jax.tree.leaves(eqx.filter(enn, mask))
    after_leaves = jax.tree.leaves(eqx.filter(after.model, mask))
    for old, new in zip(before_leaves, after_leaves, strict=True):
        assert not jnp.array_equal(old, new) or not jnp.any(old)


@every_enn
def test_round_trip_through_a_file(enn, tmp_path):
    epi.save(tmp_path / "enn.safetensors", enn)
    blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_inexact_array(leaf) else leaf, enn)
    assert same_arrays(epi.load(tmp_path / "enn.safetensors", blank), enn)


@every_enn
def test_input_is_not_touched_by_the_index(enn, getkey):
    # `embed` sees no index, so one embedding serves all of them: it is a tree of arrays of one input.
    embedding = enn.embed(jr.normal(getkey(), (IN_DIM,)))
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(embedding))
