"""Batch normalization: closed forms, the first step, PyTorch's numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.networks import BatchNorm, Statistics

SHAPE = (6, 5, 4, 3)
SIZE = 6 * 5 * 4


def make(**options):
    """Return a layer for three channels, and its state."""
    return eqx.nn.make_with_state(BatchNorm)(3, **options)


@eqx.filter_jit
def run(norm, x, state):
    """Return the normalized batch and the new state."""
    return jax.vmap(norm, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(x, state)


def images(key, number=0):
    """Return a batch whose channels have different means and scales."""
    x = jr.normal(jr.fold_in(key, number), SHAPE)
    return x * jnp.array([0.2, 2.0, 30.0])[None, None, None] + jnp.array([1.0, -5.0, 100.0])[None, None, None]


def moments(x):
    """Return the mean and the biased variance per channel."""
    x = np.asarray(x, np.float64)
    return x.mean((0, 1, 2)), x.var((0, 1, 2))


def test_training_normalizes_by_the_biased_moments_of_the_batch(getkey):
    norm, state = make()
    norm = eqx.tree_at(lambda n: (n.weight, n.bias), norm, (jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0, -1.0])))
    x = images(getkey())
    mean, var = moments(x)
    expected = (np.asarray(x, np.float64) - mean) / np.sqrt(var + 1e-5) * [1, 2, 3] + [0, 1, -1]
    assert np.allclose(run(norm, x, state)[0], expected, atol=1e-4)


def test_inference_is_right_after_the_first_step(getkey):
    norm, state = make()
    x = images(getkey())
    output, state = run(norm, x, state)
    mean, var = moments(x)
    running = state.get(norm.statistics)
    assert np.allclose(running.mean, mean, rtol=1e-5) and np.allclose(running.var, var * SIZE / (SIZE - 1), rtol=1e-4)
    later, same = run(eqx.nn.inference_mode(norm), x, state)
    # Inference differs by the unbiased variance only, and leaves the statistics alone.
    assert np.allclose(later, output * np.sqrt((SIZE - 1) / SIZE), atol=1e-4)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, jax.tree.leaves(same), jax.tree.leaves(state)))


@pytest.mark.parametrize("debias", [True, False])
def test_running_values_are_weighted_means_of_the_batches(debias, getkey):
    norm, state = make(momentum=0.7, debias=debias)
    key = getkey()
    weights, means, variances = [0.3 * 0.7**2, 0.3 * 0.7, 0.3], [], []
    for number in range(3):
        x = images(key, number)
        _, state = run(norm, x, state)
        mean, var = moments(x)
        means, variances = [*means, mean], [*variances, var * SIZE / (SIZE - 1)]
    mean, var = np.dot(weights, means), np.dot(weights, variances)
    if debias:
        mean, var = mean / sum(weights), var / sum(weights)
    else:
        # What is left of the starting values, mean 0 and variance 1.
        var = var + 0.7**3
    running = state.get(norm.statistics)
    assert np.allclose(running.mean, mean, rtol=1e-5) and np.allclose(running.var, var, rtol=1e-4)
    assert int(running.count) == 3


def test_inference_needs_no_axis_and_uses_the_given_values(getkey):
    norm, state = make(eps=0.1)
    given = Statistics(jnp.array([1.0, 2.0, 3.0]), jnp.array([4.0, 0.5, 0.0]), jnp.array(7, dtype=jnp.int32))
    state = state.set(norm.statistics, given)
    x = jr.normal(getkey(), (2, 3))
    output, _ = eqx.nn.inference_mode(norm)(x, state)
    assert jnp.allclose(output, (x - given.mean[None]) / jnp.sqrt(given.var + 0.1)[None], atol=1e-6)


def test_training_does_not_see_shift_and_scale_of_its_input(getkey):
    norm, state = make()
    x, weight = jr.normal(getkey(), SHAPE), jr.normal(getkey(), SHAPE)

    def value(shift, scale):
        return jnp.sum(weight * run(norm, x * scale + shift, state)[0])

    gradients = jax.grad(value, argnums=(0, 1))(jnp.array(0.5), jnp.array(2.0))
    # Exactly zero but for `eps` and rounding; without gradients through the moments the first would be -1.8.
    assert jnp.allclose(jnp.stack(gradients), 0.0, atol=2e-3)


def test_statistics_of_half_precision_are_in_single_precision(getkey):
    norm, state = make()
    # A mean of 500 with deviations of 2: sums in bfloat16 would lose all of them.
    x = (500 + 2 * jr.normal(getkey(), SHAPE)).astype(jnp.bfloat16)
    halved = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf, norm)
    output, state = run(halved, x, state)
    running = state.get(norm.statistics)
    mean, var = moments(x.astype(jnp.float32))
    assert output.dtype == jnp.bfloat16 and running.mean.dtype == running.var.dtype == jnp.float32
    assert np.allclose(running.mean, mean, rtol=1e-5) and np.allclose(running.var, var * SIZE / (SIZE - 1), rtol=1e-3)


def test_pytorch_agrees(getkey):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.BatchNorm2d(3)
    norm, state = make(debias=False)
    key = getkey()
    for number in range(4):
        x = images(key, number)
        if number == 3:
            theirs.eval()
            norm = eqx.nn.inference_mode(norm)
        expected = theirs(torch.tensor(np.moveaxis(np.asarray(x), -1, 1)))
        output, state = run(norm, x, state)
        assert np.allclose(np.moveaxis(np.asarray(output), -1, 1), expected.detach().numpy(), atol=1e-4)
    running = state.get(norm.statistics)
    assert np.allclose(running.mean, theirs.running_mean, rtol=1e-5)
    assert np.allclose(running.var, theirs.running_var, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda norm, state: BatchNorm(0), "`num_channels` must be a positive integer; got 0"),
        (lambda norm, state: BatchNorm(3, momentum=1.0), r"`momentum` must be in \[0, 1\); got 1.0"),
        (lambda norm, state: BatchNorm(3, eps=0.0), "`eps` must be positive; got 0.0"),
        (lambda norm, state: norm(jnp.zeros((2, 3)), state), "`axis_name` must be that of an enclosing `jax.vmap`"),
        (lambda norm, state: run(norm, jnp.zeros((2, 4)), state), r"`x` must have 3 channels in its last axis"),
        (lambda norm, state: run(norm, jnp.zeros((1, 3)), state), "`x` must have at least 2 values per channel"),
    ],
)
def test_bad_input_is_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call(*make())
