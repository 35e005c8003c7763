"""Log-losses: one pass, any chunk, any M; what an estimate says and refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Counting, Linear, Table, Traces

import epinet_eqx as epi
from epinet_eqx._counts import dyadic_cases
from epinet_eqx._draws import map_batches
from epinet_eqx._scores import check_data, stream_scores
from epinet_eqx.likelihoods import Categorical, Gaussian
from epinet_eqx.metrics import (
    Estimate,
    dyadic_log_loss,
    joint_log_loss,
    log_loss_curve,
    log_losses,
    loss_grid,
    marginal_log_loss,
    sampled_dyadic_log_loss,
)
from epinet_eqx.networks import MLP
from epinet_eqx.predict import marginal_log_probs

pytestmark = pytest.mark.once

X, Y = jnp.arange(4), jnp.array([0, 1, 1, 0])
EVERY, OTHER = (epi.Draws.all(epi.indices.ParticleIndex(count)) for count in (1, 2))


def close(a, b, atol=1e-5):
    return np.allclose(a, b, rtol=1e-5, atol=atol)


def same(first, second):
    return all(close(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


@pytest.fixture
def epinet(getkey):
    return epi.attach(MLP(3, 4, (8,), key=getkey()), out_size=4, index_dim=3, hidden=(5,), key=getkey())


@pytest.fixture
def gaussian(getkey):
    return Linear(jr.normal(getkey(), (4, 3)))


@pytest.fixture
def data(getkey):
    return 2 * jr.normal(getkey(), (6, 3)), jnp.array([0, 3, 2, 1, 1, 0])


def test_one_pass_gives_what_the_parts_give(gaussian, data, getkey):
    x, y = data
    key = getkey()
    draws = epi.Draws.sample(gaussian.index, 21, key=key)
    losses = log_losses(gaussian, x, y, draws, tau=4)
    log_probs = marginal_log_probs(gaussian, x, draws)
    assert close(losses.marginal.values, -log_probs[jnp.arange(6), y])
    assert close(losses.error.values, jnp.argmax(log_probs, axis=1) != y)
    assert close(losses.marginal.values, marginal_log_loss(gaussian, x, y, draws).values)
    assert close(losses.joint.values, dyadic_log_loss(gaussian, x, y, draws, tau=4).values)
    # Neither the chunk nor the batch changes anything.
    cut = epi.Draws.sample(gaussian.index, 21, key=key, chunk_size=8, batch_size=4)
    assert same(losses, log_losses(gaussian, x, y, cut, tau=4))


def test_curve_equals_separate_runs(gaussian, data, getkey):
    x, y = data
    key = getkey()
    curve = log_loss_curve(
        gaussian, x, y, epi.Draws.sample(gaussian.index, 21, key=key, chunk_size=4), sample_counts=(3, 10, 21)
    )
    assert [losses.joint.num_samples for losses in curve] == [3, 10, 21]
    for losses in curve[::2]:
        assert same(
            losses, log_losses(gaussian, x, y, epi.Draws.sample(gaussian.index, losses.joint.num_samples, key=key))
        )


def test_one_pass_for_all_temperatures_numbers_of_labels_and_of_indices(gaussian, data, getkey):
    x, y = data
    key, traces = getkey(), Traces()
    draws = epi.Draws.sample(gaussian.index, 21, key=key, chunk_size=4, batch_size=4)
    axes = {"temperatures": (1.0, 0.4), "taus": (1, 4, 10), "sample_counts": (3, 21)}
    grid = loss_grid(Counting(gaussian, traces), x, y, draws, **axes)
    # The shape of an output once, and one embedding in the program, whatever is asked for.
    assert traces.count == 2
    fewer = loss_grid(gaussian, x, y, draws, **axes, with_error=False)
    assert fewer.error is None and fewer.losses(10).error is None and close(fewer.marginal, grid.marginal)
    for place, temperature in enumerate(axes["temperatures"]):
        for position, count in enumerate(axes["sample_counts"]):
            for tau in axes["taus"]:
                fewer = epi.Draws.sample(gaussian.index, count, key=key)
                expected = log_losses(epi.Tempered(gaussian, temperature), x, y, fewer, tau=tau)
                found = grid.losses(tau, temperature=place, count=position)
                assert same(found, expected)
                assert (found.joint.tau, found.joint.num_samples) == (tau, count)


def test_grid_of_a_finite_support_and_of_a_regression(getkey):
    table = Table(2 * jr.normal(getkey(), (5, 4, 3)))
    draws = epi.Draws.all(table.index)
    grid = loss_grid(table, X, Y, draws, temperatures=jnp.array([2.0]))
    found = grid.losses(10)
    assert same(found, log_losses(epi.Tempered(table, 2.0), X, Y, draws)) and found.joint.exact
    enn = Linear(jnp.ones((1, 2)))
    draws = epi.Draws.sample(enn.index, 7, key=getkey())
    x, y = jr.normal(getkey(), (4, 2)), jr.normal(getkey(), (4, 1))
    scaled = loss_grid(enn, x, y, draws, taus=(3,), likelihood=Gaussian(0.5))
    assert scaled.error is None and same(
        scaled.losses(3), log_losses(enn, x, y, draws, tau=3, likelihood=Gaussian(0.5))
    )


def test_batches_of_inputs_are_of_nearly_equal_size():
    sizes = []

    def double(x):
        sizes.append(x.shape[0])
        return 2 * x

    assert np.array_equal(map_batches(double, jnp.arange(9), length=9, batch_size=8), 2 * np.arange(9))
    # Five and four, not eight and one: the second is padded to the first.
    assert set(sizes) == {5}


def test_indices_are_shared_by_all_inputs(gaussian, data, getkey):
    # Pitfall 9: the scores of inputs do not depend on which others they are evaluated with.
    x, y = data
    draws = epi.Draws.sample(gaussian.index, 5, key=getkey())
    whole = marginal_log_loss(gaussian, x, y, draws)
    parts = [marginal_log_loss(gaussian, x[half], y[half], draws) for half in (slice(0, 3), slice(3, 6))]
    assert close(whole.values, jnp.concatenate([part.values for part in parts]))


def test_memory_does_not_grow_with_the_number_of_samples(epinet, data, getkey):
    x, y = data
    counts, _ = dyadic_cases(10)

    def temporary(num_samples):
        draws = epi.Draws.sample(epinet.index, num_samples, key=jr.key(0))
        checked = check_data(epinet, x, y, draws, group_size=2, likelihood=Categorical())
        lowered = eqx.filter_jit(stream_scores).lower(
            epinet,
            checked.x,
            checked.y,
            counts,
            checked.draws,
            likelihood=Categorical(),
            sample_counts=(num_samples,),
            batch_size=checked.batch_size,
            num_classes=4,
        )
        return lowered.compile().compiled.memory_analysis().temp_size_in_bytes

    assert 0 < temporary(100_000) <= 1.1 * temporary(1000)


def test_scalars_and_keys_compile_nothing_anew(epinet, data, getkey):
    x, y = data
    traces = Traces()

    def evaluate(temperature, scale):
        enn = Counting(epi.Tempered(epinet.with_prior_scales(scale), temperature), traces)
        return log_losses(enn, x, y, epi.Draws.sample(enn.index, 5, key=getkey())).joint.mean

    evaluate(1.0, 1.0)
    before = traces.count
    evaluate(0.5, 3.0)
    assert traces.count == before > 0


def test_losses_of_stacked_networks_inside_a_program(getkey):
    tables = 2 * jr.normal(getkey(), (3, 2, 4, 2))

    @eqx.filter_jit
    @eqx.filter_vmap
    def losses(outputs):
        enn = eqx.tree_at(lambda t: t.outputs, Table(tables[0]), outputs)
        return log_losses(enn, X, Y, epi.Draws.all(enn.index))

    found = losses(tables)
    for number in range(3):
        expected = log_losses(Table(tables[number]), X, Y, epi.Draws.all(Table(tables[number]).index))
        assert close(found.joint.mean[number], expected.joint.mean)
    with pytest.raises(RuntimeError, match="`enn` must not output NaN"):
        losses(tables.at[1, 0, 0, 0].set(jnp.nan))


def extreme_outputs(getkey):
    """Return outputs of three particles at four inputs of five classes, far from zero and with impossible classes."""
    outputs = 3 * np.asarray(jr.normal(getkey(), (3, 4, 5)))
    outputs[0] += np.array([1e4, -1e4, 0.0, 1e4])[:, None]
    outputs[1, :, 0] += [1e4, -1e4, 120.0, -120.0]
    outputs[2, :, 4] = -np.inf
    return outputs.astype(np.float32)


@pytest.mark.parametrize("chunk_size", [1, 2, 16])
def test_losses_of_extreme_outputs_are_those_of_double_precision(chunk_size, getkey):
    outputs = extreme_outputs(getkey)
    wide = outputs.astype(np.float64)
    log_p = wide - np.logaddexp.reduce(wide, axis=2, keepdims=True)
    own = log_p[:, np.arange(4), Y].reshape(3, 2, 2)
    counts, weights = (np.asarray(part, np.float64) for part in dyadic_cases(10))
    joint = np.logaddexp.reduce(np.einsum("mga,ca->mgc", own, counts)) - np.log(3)
    marginal = np.logaddexp.reduce(own).ravel() - np.log(3)
    table = Table(outputs)
    found = log_losses(table, X, Y, epi.Draws.all(table.index, chunk_size=chunk_size))
    np.testing.assert_allclose(found.marginal.values, -marginal, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(found.joint.values, -joint @ weights, rtol=2e-6, atol=1e-6)
    wrong = np.argmax(np.exp(log_p).mean(axis=0), axis=1) != Y
    np.testing.assert_array_equal(found.error.values, wrong)
    # The label of no chance costs infinity, and is no error of the network.
    impossible = log_losses(Table(outputs[2:]), X, jnp.full(4, 4), epi.Draws.all(EVERY.index, chunk_size=chunk_size))
    assert jnp.all(jnp.isposinf(impossible.marginal.values)) and jnp.all(jnp.isposinf(impossible.joint.values))


def test_nan_is_an_error_and_the_core_can_count_it():
    table = Table([[[0.0, 1.0], [1.0, 0.0], [jnp.nan, 0.0], [0.0, 1.0]]])
    for function in (log_losses, dyadic_log_loss, marginal_log_loss):
        with pytest.raises(ValueError, match="`enn` must not output NaN; got NaN in the log-probabilities over 1"):
            function(table, X, Y, epi.Draws.all(table.index))
    draws = epi.Draws.all(table.index, chunk_size=1)
    data = check_data(table, X, Y, draws, group_size=2, likelihood=Categorical())
    (scores,) = stream_scores(
        table,
        data.x,
        data.y,
        dyadic_cases(2)[0],
        data.draws,
        likelihood=Categorical(),
        sample_counts=(1,),
        batch_size=4,
        num_classes=2,
    )
    assert jnp.array_equal(jnp.isnan(scores.marginal), jnp.array([[False, False], [True, False]]))
    assert jnp.array_equal(jnp.isnan(scores.wrong), jnp.isnan(scores.marginal))
    assert jnp.array_equal(jnp.isfinite(scores.joint).all(axis=1), jnp.array([True, False]))


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (log_losses, {"tau": 0}, "`tau` must be a positive integer; got 0."),
        (dyadic_log_loss, {"tau": -1}, "`tau` must be a positive integer; got -1."),
        (sampled_dyadic_log_loss, {"tau": 0}, "`tau` must be a positive integer; got 0."),
        (sampled_dyadic_log_loss, {"num_anchors": 0}, "`num_anchors` must be a positive integer; got 0."),
        (sampled_dyadic_log_loss, {"num_draws": 0}, "`num_draws` must be a positive integer; got 0."),
        (sampled_dyadic_log_loss, {"num_anchors": 3}, "`x` must hold a multiple of 3 examples"),
        (joint_log_loss, {"tau": 3}, "`x` must hold a multiple of 3 examples"),
        (log_losses, {"draws": OTHER}, "`draws` must be of the index of `enn`"),
        (log_losses, {"y": jnp.array([0, 1, 2, 0])}, "`y` must hold classes from 0 to 1; got values from 0 to 2."),
        (log_losses, {"x": X[:3], "y": Y[:3]}, "`x` must hold a multiple of 2 examples, since"),
        (log_losses, {"x": X[:0], "y": Y[:0]}, "`x` must not be empty"),
        (log_loss_curve, {"sample_counts": (3, 3)}, "`sample_counts` must increase; got (3, 3)."),
        (log_loss_curve, {"sample_counts": (0, 3)}, "`sample_counts` must hold positive integers only; got (0, 3)."),
        (log_loss_curve, {"sample_counts": ()}, "`sample_counts` must increase; got ()."),
        (log_loss_curve, {"sample_counts": (3, 9)}, "`sample_counts` must not exceed the number of draws, 5; got 9."),
        (log_loss_curve, {"sample_counts": (1,), "draws": EVERY}, "`draws` must be sampled for a curve in M"),
        (loss_grid, {"taus": ()}, "`taus` must hold at least one number of labels, and each once; got ()."),
        (loss_grid, {"taus": (2, 2)}, "`taus` must hold at least one number of labels, and each once; got (2, 2)."),
        (loss_grid, {"temperatures": ()}, "`temperatures` must be a vector of at least one temperature"),
        (loss_grid, {"temperatures": (1.0, 0.0)}, "`temperatures` must be finite and at least 1e-06; got 0.0."),
        (loss_grid, {"sample_counts": (9,)}, "`sample_counts` must not exceed the number of draws, 5; got 9."),
    ],
)
def test_bad_arguments_are_named_with_their_value(function, arguments, message):
    table = Table(jnp.zeros((1, 4, 2)))
    options = {"draws": epi.Draws.sample(table.index, 5, key=jr.key(0))}
    if function is sampled_dyadic_log_loss:
        options["key"] = jr.key(0)
    with pytest.raises(ValueError) as error:
        function(table, **({"x": X, "y": Y} | options | arguments))
    assert message in str(error.value)


def test_only_like_is_compared_with_like():
    # Pitfall 15: losses at different M (or tau) are not comparable; an exact average is with every M.
    values = jnp.array([1.0, 2.0, 6.0])
    first, second = Estimate(values, 10, tau=5), Estimate(values - 1, 10, tau=5)
    difference = first - second
    assert close(difference.mean, 1) and close(difference.standard_error, 0) and difference.num_samples == 10
    with pytest.raises(ValueError, match="`num_samples` must be the same .* got 10 and 30"):
        first - Estimate(values, 30, tau=5)
    with pytest.raises(ValueError, match="`tau` must be the same .* got 5 and 1"):
        first - Estimate(values, 10)
    with pytest.raises(ValueError, match="same data .* got 3 and 2"):
        first - Estimate(values[:2], 10, tau=5)
    assert close((first - Estimate(values, 3, tau=5, exact=True)).mean, 0)


def test_estimates_print_error_and_number_of_samples():
    estimate = Estimate(jnp.array([1.0, 2.0, 6.0]), 1000, tau=10)
    assert close(estimate.mean, 3) and close(estimate.standard_error, np.sqrt(7 / 3)) and close(estimate.per_label, 0.3)
    assert str(estimate) == "3 ± 1.5 (tau = 10, M = 1000)"
    assert str(Estimate(jnp.array([0.25]), 4, exact=True)) == "0.25 ± inf (M = 4, exact)"
    assert str(Estimate(jnp.array([[0.0, 1.0], [2.0, 2.0]]), 4)) == "0.5 ± 0.5, 2 ± 0 (M = 4)"
    losses = log_losses(Table([[[0.0, 0.0]] * 4]), X, Y, EVERY, tau=2)
    assert str(losses).splitlines() == [
        "marginal log-loss 0.6931 ± 0 (M = 1, exact)",
        "joint log-loss 1.386 ± 0 (tau = 2, M = 1, exact)",
        "error 0.5 ± 0.29 (M = 1, exact)",
    ]
    # Inside a program the numbers are not known yet, and printing is no error.
    texts = []
    jax.jit(lambda values: texts.append(str(Estimate(values, 7))))(jnp.zeros(2))
    assert "num_samples=7" in texts[0]


def test_regression_has_no_classes():
    with pytest.raises(ValueError, match="`y` must hold one integer label per example"):
        enn = Linear(jnp.ones((1, 2)))
        log_losses(enn, jnp.zeros((2, 2)), jnp.zeros(2), epi.Draws.sample(enn.index, 2, key=jr.key(0)))
