"""One step: the same result however the batch and the state are spread."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from train_toys import toy_arrays, toy_network

from epinet_eqx import attach, named_keys, trainable_mask
from epinet_eqx._tree import sum_of_squares
from epinet_eqx.bayes import BayesByBackprop
from epinet_eqx.losses import Batch, BernoulliBootstrap, CrossEntropy, GaussianKL, mean_loss
from epinet_eqx.networks import MLP
from epinet_eqx.training import (
    EpistemicObjective,
    StatefulObjective,
    TrunkObjective,
    data_mesh,
    global_batch,
    init_state,
    make_train_step,
    place,
)

pytestmark = pytest.mark.once

OPTIMIZER = optax.sgd(0.1, momentum=0.9)


def floats(tree):
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    assert leaves
    return [np.asarray(leaf) for leaf in leaves]


def assert_close(one, other, tolerance):
    for a, b in zip(floats(one), floats(other), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance)


def make_epinet(key):
    base_key, key = jr.split(key)
    return attach(MLP(4, 3, (8,), key=base_key), out_size=3, index_dim=2, hidden=(5,), key=key)


def make_batch(num_examples=8):
    x, y = toy_arrays(num_examples)
    return Batch(x, y, np.arange(num_examples, dtype=np.int32))


def run(step, state, batch, num_steps=3):
    for _ in range(num_steps):
        state, metrics = step(state, batch)
    return state, metrics


@pytest.mark.parametrize("size", [100, 2**16])
def test_sums_of_squares_have_their_gradient_whatever_the_size(size, getkey):
    # Beyond a size they are computed as a product.
    tree = {"vector": jr.normal(getkey(), (size,)), "matrix": jr.normal(getkey(), (size // 10, 11)), "name": "x"}
    arrays, rest = eqx.partition(tree, eqx.is_array)
    total, gradient = jax.value_and_grad(lambda own: sum_of_squares(eqx.combine(own, rest)))(arrays)
    expected = sum(float((np.asarray(leaf, np.float64) ** 2).sum()) for leaf in jax.tree.leaves(arrays))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    for found, leaf in zip(jax.tree.leaves(gradient), jax.tree.leaves(arrays), strict=True):
        np.testing.assert_array_equal(found, 2 * leaf)
    infinite = {**arrays, "vector": arrays["vector"].at[3].set(jnp.inf)}
    assert not np.isfinite(sum_of_squares(infinite))


def test_step_is_that_of_the_optimizer_on_the_mean_loss(getkey):
    enn, key = make_epinet(getkey()), getkey()
    loss = CrossEntropy(l2=1e-2, bootstrap=BernoulliBootstrap(0.5, key=getkey()))
    objective = EpistemicObjective(loss, num_index_samples=4)
    state, metrics = make_train_step(objective, optax.sgd(0.1))(init_state(enn, optax.sgd(0.1), key=key), make_batch())
    (index_key,) = named_keys(key, "index")
    zs = enn.index.sample_many(4, key=jr.fold_in(index_key, 0))
    params, rest = eqx.partition(enn, trainable_mask(enn))
    batch = make_batch()
    value, gradient = jax.jit(jax.value_and_grad(lambda p: mean_loss(loss, eqx.combine(p, rest), zs, batch)))(params)
    expected = eqx.combine(jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), rest)
    assert_close(state.model, expected, 1e-6)
    np.testing.assert_allclose(metrics["loss"], value, rtol=1e-6)
    np.testing.assert_allclose(metrics["gradient_norm"], optax.tree.norm(gradient), rtol=1e-5)
    assert int(state.step) == 1
    # Frozen parts have the very same bits.
    frozen, before = (eqx.filter(tree, trainable_mask(enn), inverse=True) for tree in (state.model, enn))
    assert all(np.array_equal(a, b) for a, b in zip(floats(frozen), floats(before), strict=True))


def stateful_run(key, mesh, order=slice(None), **options):
    network, statistics = toy_network(width=1024, dropout=0.3, key=jr.clone(key))
    objective = StatefulObjective(CrossEntropy(l2=1e-3))
    state = init_state(network, OPTIMIZER, model_state=statistics, ema=True, key=jr.clone(key))
    batch = jax.tree.map(lambda leaf: leaf[order], make_batch())
    if mesh is not None:
        state = place(state, mesh, shard_parameters=options.get("shard_parameters", False))
        batch = global_batch(batch, mesh)
    return run(make_train_step(objective, OPTIMIZER, mesh=mesh, ema_decay=0.9, **options), state, batch)


def test_result_does_not_depend_on_devices_or_on_the_order_in_a_batch(getkey):
    key = getkey()
    alone, metrics = stateful_run(key, None)
    copied, copied_metrics = stateful_run(key, data_mesh())
    cut, cut_metrics = stateful_run(key, data_mesh(), order=slice(None, None, -1), shard_parameters=True)
    for state, other in ((copied, copied_metrics), (cut, cut_metrics)):
        assert_close((state.model, state.model_state, state.ema), (alone.model, alone.model_state, alone.ema), 1e-5)
        np.testing.assert_allclose(other["loss"], metrics["loss"], rtol=1e-5)
    assert np.any(np.abs(np.concatenate([np.ravel(leaf) for leaf in floats(alone.model_state)])) > 1e-2)
    # A copy on each device, or a quarter, in all that has the size of a parameter.
    for state, rows in ((copied, 1024), (cut, 256)):
        for tree in (state.model, state.ema[0], state.opt_state[0].trace):
            assert tree.first.weight.addressable_shards[0].data.shape == (rows, 4)
        assert state.model.last.bias.addressable_shards[0].data.shape == (3,)


def test_one_program_for_all_steps(getkey):
    traces = 0

    counting = StatefulObjective(CrossEntropy())

    def objective(*args, **kwargs):
        nonlocal traces
        traces += 1
        return counting(*args, **kwargs)

    network, statistics = toy_network(key=getkey())
    mesh = data_mesh()
    state = place(init_state(network, OPTIMIZER, model_state=statistics, key=getkey()), mesh)
    run(make_train_step(objective, OPTIMIZER, mesh=mesh), state, global_batch(make_batch(), mesh))
    assert traces == 1


@pytest.mark.parametrize("spread", [False, True])
def test_accumulated_gradients_are_those_of_the_batch(getkey, spread):
    enn, key = make_epinet(getkey()), getkey()
    loss = CrossEntropy(l2=1e-2, bootstrap=BernoulliBootstrap(0.5, key=getkey()))
    objective = EpistemicObjective(loss, num_index_samples=4)
    mesh = data_mesh() if spread else None
    results = []
    for microbatches in (1, 2):
        state, batch = init_state(enn, OPTIMIZER, key=jr.clone(key)), make_batch()
        if mesh is not None:
            state, batch = place(state, mesh), global_batch(batch, mesh)
        step = make_train_step(objective, OPTIMIZER, mesh=mesh, microbatches=microbatches)
        results.append(run(step, state, batch))
    (whole, whole_metrics), (parts, parts_metrics) = results
    assert_close(whole.model, parts.model, 1e-6)
    np.testing.assert_allclose(whole_metrics["loss"], parts_metrics["loss"], atol=1e-6)


def test_each_part_of_a_batch_updates_the_statistics(getkey):
    network, statistics = toy_network(key=getkey())
    objective = StatefulObjective(CrossEntropy())
    state = init_state(network, OPTIMIZER, model_state=statistics, key=getkey())
    batch = make_batch()
    new, _ = make_train_step(objective, OPTIMIZER, microbatches=2)(state, batch)
    hidden = jax.vmap(network.first)(batch.x)
    first, second = jnp.mean(hidden[0::2], axis=0), jnp.mean(hidden[1::2], axis=0)
    mean = new.model_state.get(new.model.norm.statistics).mean
    np.testing.assert_allclose(mean, 0.9 * 0.1 * first + 0.1 * second, atol=1e-6)


def epistemic(key, dtype):
    return EpistemicObjective(CrossEntropy(l2=1e-2), num_index_samples=4, compute_dtype=dtype), make_epinet(key), None


def stateful(key, dtype):
    network, statistics = toy_network(key=key)
    return StatefulObjective(CrossEntropy(l2=1e-2), compute_dtype=dtype), network, statistics


def trunk(key, dtype):
    trunk_key, base_key, enn_key = jr.split(key, 3)
    network, statistics = toy_network(key=trunk_key)
    enn = attach(MLP(8, 3, (), feature_layers=(0,), key=base_key), out_size=3, index_dim=2, hidden=(5,), key=enn_key)
    return TrunkObjective(CrossEntropy(l2=1e-2), num_index_samples=4, compute_dtype=dtype), (network, enn), statistics


def variational(key, dtype):
    enn = BayesByBackprop(MLP(4, 3, (8,), key=key))
    loss = CrossEntropy(penalty=GaussianKL(8))
    return EpistemicObjective(loss, num_index_samples=4, compute_dtype=dtype), enn, None


@pytest.mark.parametrize("make", [epistemic, stateful, trunk, variational])
def test_half_precision_computes_what_single_precision_does(getkey, make):
    key, step_key = getkey(), getkey()
    results = []
    for dtype in (None, jnp.bfloat16):
        objective, model, statistics = make(jr.clone(key), dtype)
        state = init_state(model, OPTIMIZER, model_state=statistics, key=jr.clone(step_key))
        step = make_train_step(objective, OPTIMIZER)
        program = str(
            jax.make_jaxpr(lambda batch, s=state, o=objective: o(s.model, s.model_state, batch, key=s.key)[0])(
                make_batch()
            )
        )
        assert ("bf16" in program) == (dtype is not None)
        results.append(step(state, make_batch()))
    (single, single_metrics), (half, half_metrics) = results
    assert {leaf.dtype for leaf in floats((half.model, half.opt_state))} == {np.dtype(np.float32)}
    np.testing.assert_allclose(half_metrics["loss"], single_metrics["loss"], rtol=2e-2)
    assert float(half_metrics["loss"]) != float(single_metrics["loss"])
    assert_close((half.model, half.model_state), (single.model, single.model_state), 2e-2)


def test_penalty_keeps_single_precision(getkey):
    enn = make_epinet(getkey())
    losses = []
    for scale in (0.0, 1.0):
        objective = EpistemicObjective(CrossEntropy(l2=scale), num_index_samples=2, compute_dtype=jnp.bfloat16)
        losses.append(eqx.filter_jit(objective)(enn, None, make_batch(), key=jr.key(0))[0])
    squares = sum(np.sum(np.square(leaf)) for leaf in floats(eqx.filter(enn, trainable_mask(enn))))
    np.testing.assert_allclose(losses[1] - losses[0], squares, rtol=1e-5)


def test_averages_follow_their_recursion(getkey):
    network, statistics = toy_network(key=getkey())
    state = init_state(network, OPTIMIZER, model_state=statistics, ema=True, key=getkey())
    step = make_train_step(StatefulObjective(CrossEntropy()), OPTIMIZER, ema_decay=0.15)
    expected = floats((network, statistics))
    for weight in (0.1, 0.15, 0.15):
        state, _ = step(state, make_batch())
        now = floats((state.model, state.model_state))
        expected = [weight * old + (1 - weight) * new for old, new in zip(expected, now, strict=True)]
    for a, b in zip(floats(state.averaged()), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert jax.tree.structure(state.averaged()) == jax.tree.structure((state.model, state.model_state))


def test_step_that_is_not_finite_changes_nothing(getkey):
    network, statistics = toy_network(key=getkey())
    state = init_state(network, OPTIMIZER, model_state=statistics, ema=True, key=getkey())
    step = make_train_step(StatefulObjective(CrossEntropy()), OPTIMIZER, ema_decay=0.9)
    bad = eqx.tree_at(lambda batch: batch.x, make_batch(), replace_fn=lambda x: x.at[0, 0].set(jnp.nan))
    after, metrics = step(state, bad)
    assert not metrics["ok"]
    assert all(np.array_equal(a, b) for a, b in zip(floats(after), floats(state), strict=True))
    assert int(after.step) == 0
    assert step(state, make_batch())[1]["ok"]


def test_inference_uses_the_running_statistics(getkey):
    network, statistics = toy_network(dropout=0.5, key=getkey())
    batch, key = make_batch(), getkey()
    objective = StatefulObjective(CrossEntropy())
    evaluate = eqx.filter_jit(objective.evaluate)
    whole = evaluate(network, statistics, batch, key=key)
    single = [
        evaluate(network, statistics, jax.tree.map(lambda leaf, n=n: leaf[n : n + 1], batch), key=key) for n in range(8)
    ]
    for name in ("loss", "log_loss", "accuracy"):
        np.testing.assert_allclose(whole[name], [float(values[name][0]) for values in single], atol=1e-6)


def test_trunk_evaluates_as_an_enn_on_its_features(getkey):
    objective, (network, enn), statistics = trunk(getkey(), None)
    batch, key = make_batch(), getkey()
    frozen = eqx.nn.inference_mode(network)
    features = jax.vmap(lambda x: frozen.with_features(x, statistics)[1])(batch.x)
    expected = eqx.filter_jit(EpistemicObjective(objective.loss, num_index_samples=4).evaluate)(
        enn, None, Batch(features, batch.y, batch.i), key=key
    )
    found = eqx.filter_jit(objective.evaluate)((network, enn), statistics, batch, key=key)
    for name in ("loss", "log_loss", "accuracy"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_bad_input(getkey, as_user):
    network, statistics = toy_network(key=getkey())
    objective = StatefulObjective(CrossEntropy())
    state = init_state(network, OPTIMIZER, model_state=statistics, key=getkey())
    with pytest.raises(ValueError, match="`ema_decay` must be given exactly if `state` has averages"):
        make_train_step(objective, OPTIMIZER, ema_decay=0.9)(state, make_batch())
    with pytest.raises(ValueError, match="`ema_decay` must be at least 0 and less than 1"):
        make_train_step(objective, OPTIMIZER, ema_decay=1.0)
    with pytest.raises(ValueError, match="`microbatches` must divide the batch size, 8; got 3"):
        make_train_step(objective, OPTIMIZER, microbatches=3)(state, make_batch())
    with pytest.raises(ValueError, match="`batch` must hold a number of examples that the 4 devices"):
        global_batch(make_batch(6), data_mesh())
    with pytest.raises(ValueError, match=r"`data` must be a tuple `\(x, y\)`, or yield a `Batch`"):
        global_batch(np.zeros(4), data_mesh())
    with pytest.raises(ValueError, match="`compute_dtype` must be a floating-point type"):
        StatefulObjective(CrossEntropy(), compute_dtype=jnp.int32)
    with pytest.raises(ValueError, match="`model` must have something to train"):
        init_state(jax.nn.relu, OPTIMIZER, key=getkey())
    with pytest.raises(ValueError, match="`devices` must hold at least one"):
        data_mesh([])
