"""The Neural Testbed: settings, problems, stacks of them, and the order of their examples."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx._xla import jit_unoptimized
from epinet_eqx.testbed import (
    GenerativeModel,
    Problem,
    Setting,
    find_setting,
    generate_problems,
    problem_keys,
    settings,
    stack_problems,
    take_member,
)
from epinet_eqx.testbed._stacks import padded_size
from epinet_eqx.training import ShuffledBatches, Steps

pytestmark = pytest.mark.once

SMALL = Setting(input_dim=2, data_ratio=2, temperature=0.1, seed=0, number=7)
OTHER = Setting(input_dim=2, data_ratio=3, temperature=0.5, seed=1, number=9)


def arrays(batches=3, tau=2, dim=2):
    """Return valid arguments of `Problem.from_arrays`."""
    return {
        "x": np.ones((4, dim)),
        "y": np.array([0, 1, 1, 0]),
        "test_x": np.ones((batches, tau, dim)),
        "test_y": np.zeros((batches, tau), dtype=int),
        "test_log_likelihoods": np.full(batches, -1.0),
        "temperature": 0.1,
    }


def test_settings_are_the_testbeds_in_its_order():
    every = settings()
    assert [setting.number for setting in every] == list(range(1, 181))
    assert len({setting.id for setting in every}) == 180
    assert [setting.seed for setting in every[:6]] == [0, 1, 2, 3, 4, 0]
    assert [setting.temperature for setting in every[:15:5]] == [0.01, 0.1, 0.5]
    assert [setting.num_train for setting in every[::15]] == [
        *(2, 20, 200, 2000),
        *(10, 100, 1000, 10_000),
        *(100, 1000, 10_000, 100_000),
    ]
    assert [setting.input_dim for setting in every[::60]] == [2, 10, 100]
    assert find_setting(62).id == "d10_lambda1_rho0.01_seed1"
    assert find_setting("d100_lambda1000_rho0.5_seed4").number == 180


def test_unknown_problem_names_the_near_ones():
    with pytest.raises(ValueError, match="`problem` must be a known name.*d10_lambda10_rho0.1_seed.*got 'd10_lambda10"):
        find_setting("d10_lambda10_rho0.1_seed9")
    with pytest.raises(ValueError, match="there are d2_lambda1_rho0.01_seed0.* and 172 more; got '!'"):
        find_setting("!")
    with pytest.raises(ValueError, match="`problem` must be a number from 1 to 180; got 0"):
        find_setting(0)
    with pytest.raises(ValueError, match="`temperature` must be positive and finite; got 0"):
        Setting(input_dim=2, data_ratio=1, temperature=0.0, seed=0, number=1)
    with pytest.raises(ValueError, match="`data_ratio` must give at least one example"):
        Setting(input_dim=2, data_ratio=0.1, temperature=0.1, seed=0, number=1)


def test_generative_model_has_the_testbeds_weights(getkey):
    draw = jit_unoptimized(jax.vmap(lambda key: jax.tree.leaves(GenerativeModel(9, 2, 0.25, key=key))))
    models = [np.asarray(leaf) for leaf in draw(jr.split(getkey(), 200))]
    shapes = [leaf.shape[1:] for leaf in models]
    assert shapes == [(50, 9), (50,), (50, 50), (50,), (2, 50), (2,), ()]
    # The standard deviation of a normal variable that is truncated at two is 0.8796.
    for weight, fan_in in ((models[0], 9), (models[2], 50), (models[4], 50)):
        np.testing.assert_allclose(np.std(weight), 0.8796 / np.sqrt(fan_in), rtol=0.02)
        assert np.max(np.abs(weight)) <= 2.0001 / np.sqrt(fan_in)
    # Not truncated: 10,000 normal variables reach beyond three standard deviations.
    np.testing.assert_allclose(np.std(models[1]), 1 / 3, rtol=0.03)
    assert np.max(np.abs(models[1])) > 1
    assert not np.any(models[3]) and not np.any(models[5])


def test_data_are_normal_with_labels_of_the_model(getkey):
    setting = Setting(input_dim=2, data_ratio=1000, temperature=0.5, seed=0, number=1)
    problem = Problem.generate(setting, key=getkey())
    x, y = problem.data.x, problem.data.y
    assert x.shape == (2000, 2) and y.shape == (2000,) and int(problem.knowledge.num_train) == 2000
    np.testing.assert_allclose(jnp.mean(x, axis=0), 0, atol=0.1)
    np.testing.assert_allclose(jnp.cov(x.T), np.eye(2), atol=0.15)
    # The model divides the logits of its network by the temperature.
    probs = jax.nn.softmax(jax.vmap(problem.model.network)(x) / 0.5)[:, 1]
    # Calibration: labels minus their probabilities, also times the probabilities, have mean zero.
    residual = y.astype(float) - probs
    bound = 4 * float(jnp.sqrt(jnp.mean(probs * (1 - probs)) / 2000))
    assert abs(float(jnp.mean(residual))) < bound and abs(float(jnp.mean(residual * probs))) < bound


def test_padding_and_stacking_change_no_example(getkey):
    key = getkey()
    stacked = generate_problems([SMALL, OTHER], key=key)
    assert stacked.data.x.shape == (2, 2000, 2)
    keys = problem_keys([SMALL, OTHER], key=key)
    for number, setting in enumerate((SMALL, OTHER)):
        alone = Problem.generate(setting, key=keys[number])
        member = take_member(stacked, number)
        assert not np.any(np.asarray(member.data.x)[setting.num_train :])
        assert not np.any(np.asarray(member.data.y)[setting.num_train :])
        for found, expected in zip(jax.tree.leaves(member.trimmed()), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    again = stack_problems([take_member(stacked, 0).trimmed(), take_member(stacked, 1).trimmed()])
    assert again.data.x.shape == (2, 6, 2)
    np.testing.assert_array_equal(again.data.x[0, 4:], 0)
    np.testing.assert_array_equal(again.data.x, stacked.data.x[:, :6])
    assert [padded_size(2, 2), padded_size(10, 10_000), padded_size(100, 100), padded_size(100, 100_000)] == [
        *(2000, 10_000, 10_000, 100_000)
    ]


def test_bad_problems_are_refused(getkey):
    with pytest.raises(ValueError, match="`pad_to` must be at least the number of examples, 4; got 3"):
        Problem.generate(SMALL, pad_to=3, key=getkey())
    with pytest.raises(ValueError, match="`problems` must have one input dimension; got \\[2, 10\\]"):
        generate_problems([SMALL, find_setting(61)], key=getkey())
    with pytest.raises(ValueError, match="`problems` must hold at least one"):
        stack_problems([])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test_x": np.ones((3, 2, 5))}, "`test_x` must have shape \\(batches, tau, 2\\); got \\(3, 2, 5\\)"),
        ({"test_x": np.ones((6, 2))}, "`test_x` must have shape \\(batches, tau, 2\\); got \\(6, 2\\)"),
        ({"test_y": np.zeros((2, 3), dtype=int)}, "`test_y` must hold integers of shape \\(3, 2\\)"),
        ({"test_y": np.zeros((3, 2))}, "`test_y` must hold integers of shape"),
        ({"test_y": np.full((3, 2), 2)}, "`test_y` must hold classes from 0 to 1"),
        ({"test_log_likelihoods": np.ones(2)}, "`test_log_likelihoods` must have one entry per batch, 3"),
        ({"test_log_likelihoods": np.full(3, np.nan)}, "`test_log_likelihoods` must be finite"),
        ({"x": np.ones(4)}, "`x` must have shape \\(examples, input_dim\\)"),
        ({"y": np.zeros(3, dtype=int)}, "`y` must hold integers of shape \\(4,\\)"),
        ({"temperature": -1.0}, "`temperature` must be positive and finite; got -1.0"),
    ],
)
def test_bad_arrays_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        Problem.from_arrays(**(arrays() | changed))


def test_problem_from_arrays_has_test_batches_of_several_tau(getkey):
    problem = Problem.from_arrays(**arrays())
    more = arrays(batches=5, tau=1)
    both = problem.with_tests(more["test_x"], more["test_y"], more["test_log_likelihoods"])
    assert both.taus == (2, 1) and both.model is None and int(both.knowledge.num_train) == 4
    with pytest.raises(ValueError, match="`test_x` must have another tau"):
        both.with_tests(more["test_x"], more["test_y"], more["test_log_likelihoods"])
    with pytest.raises(ValueError, match="`test_x` must be left out for a problem with a true model"):
        Problem.generate(SMALL, key=getkey()).with_tests(more["test_x"], more["test_y"], more["test_log_likelihoods"])


def test_shuffled_batches_are_epochs_without_replacement(getkey):
    key, sizes = getkey(), [1, 2, 3, 10, 37, 60]
    batches = ShuffledBatches(20)

    @jax.jit
    def ids(sizes, start):
        return jax.vmap(lambda size: batches.ids(Steps(100, size, start, 9), key=key))(sizes)

    chosen = np.asarray(ids(jnp.asarray(sizes), jnp.asarray(0)))
    for size, row in zip(sizes, chosen, strict=True):
        epochs = row.ravel()[: 180 // size * size].reshape(-1, size)
        np.testing.assert_array_equal(np.sort(epochs, axis=1), np.broadcast_to(np.arange(size), epochs.shape))
    # Data that divide the batch are in every batch equally often: the gradient is that of all data.
    for row, size in ((chosen[1], 2), (chosen[3], 10)):
        for batch in row:
            np.testing.assert_array_equal(np.bincount(batch), 20 // size)
    # Another epoch is another order, and steps do not depend on where a block begins.
    large = chosen[5].ravel().reshape(3, 60)
    assert np.mean(large[0] == large[1]) < 0.2 and np.mean(large[0] == np.arange(60)) < 0.2
    later = np.asarray(ids(jnp.asarray(sizes), jnp.asarray(4)))
    np.testing.assert_array_equal(later[:, :5], chosen[:, 4:])
    # Each example is in each place equally often: 60 epochs of 2 examples; the bound is 4 standard deviations.
    first = chosen[1].ravel().reshape(-1, 2)[:, 0]
    assert abs(first.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(first))
    with pytest.raises(ValueError, match="`batch_size` must be given for shuffled batches"):
        ShuffledBatches(None)
