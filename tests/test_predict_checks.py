"""Predictions: what is wrong with the input is said in a sentence, and NaN is never passed on in silence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_tables import Counting, Linear, Table, Traces

from epinet_eqx import Draws
from epinet_eqx.indices import KeyIndex, ParticleIndex
from epinet_eqx.likelihoods import Bernoulli, Gaussian, LearnedGaussian, Poisson
from epinet_eqx.predict import (
    conditional_log_probs,
    joint_log_prob,
    joint_log_probs,
    marginal_log_probs,
    moments,
    sample,
    uncertainty,
)

X = jnp.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
Y = jnp.array([[0.5], [0.0], [1.0]])
ENN = Linear(jnp.ones((1, 2)))


def joint(x=X, y=Y, likelihood=None, num_samples=4, chunk_size=16):
    likelihood = Gaussian(1.0) if likelihood is None else likelihood
    draws = Draws.sample(ENN.index, num_samples, key=jr.key(0), chunk_size=chunk_size)
    return joint_log_prob(ENN, x, y, draws, likelihood=likelihood)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "`num_samples` must be a positive integer; got 0."),
        ({"chunk_size": 0}, "`chunk_size` must be a positive integer; got 0."),
        ({"x": X[:0]}, "`x` must not be empty; got shapes"),
        ({"x": jnp.array(1.0)}, "`x` must hold arrays with a leading batch axis"),
        ({"x": X.at[1, 0].set(jnp.nan)}, "`x` must be finite; got 1 non-finite of 6 values."),
        ({"y": Y[:2]}, "`y` must hold one target per example of `x`, 3; got shape (2, 1)."),
        ({"y": jnp.zeros((3, 2))}, "`y` must hold 1 floating-point outputs per example; got shape (3, 2) of float32."),
        ({"y": jnp.zeros(3, int)}, "`y` must hold 1 floating-point outputs per example; got shape (3,) of int32."),
        ({"y": Y.at[0].set(jnp.inf)}, "`y` must be finite; got 1 non-finite of 3 values."),
    ],
)
def test_bad_arguments_are_named_with_their_value(arguments, message):
    with pytest.raises(ValueError) as error:
        joint(**arguments)
    assert message in str(error.value)


def test_draws_of_another_kind_or_index_are_refused(as_user):
    for other in (1000, jr.key(0), None):
        with pytest.raises(ValueError, match="`draws` must be `Draws` of the index, such as `Draws.sample"):
            joint_log_prob(ENN, X, Y, other)
    with pytest.raises(ValueError, match="`draws` must be of the index of `enn`, GaussianIndex"):
        joint_log_prob(ENN, X, Y, Draws.all(ParticleIndex(3)))
    with pytest.raises(ValueError, match="`num_samples` must be a positive integer; got None"):
        Draws.sample(ENN.index, None, key=jr.key(0))


def test_bad_scale_of_the_noise():
    with pytest.raises(ValueError, match="`scale` must be finite and at least"):
        Gaussian(0.0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (jnp.array([0, 2]), "`y` must hold classes from 0 to 1; got values from 0 to 2."),
        (jnp.array([-1, 0]), "`y` must hold classes from 0 to 1; got values from -1 to 0."),
        (jnp.array([0.0, 1.0]), "`y` must hold one integer label per example; got shape (2,) of float32."),
        (jnp.zeros((2, 2), int), "`y` must hold one integer label per example; got shape (2, 2) of int32."),
    ],
)
def test_bad_labels(y, message):
    table = Table(jnp.zeros((1, 2, 2)))
    for call in (joint_log_prob, lambda *a, **k: conditional_log_probs(*a, jnp.array(0), **k)):
        with pytest.raises(ValueError) as error:
            call(table, jnp.arange(2), y, draws=Draws.all(table.index))
        assert message in str(error.value)


def test_table_that_would_not_fit():
    with pytest.raises(ValueError, match="at most 1048576 entries; got 30 inputs of 2 classes"):
        table = Table(jnp.zeros((1, 1, 2)))
        joint_log_probs(table, jnp.zeros(30, int), Draws.all(table.index))


def test_bad_indices_and_batches():
    with pytest.raises(ValueError, match=r"`zs` must have shape \(5, 2\); got \(5, 3\)"):
        Draws.given(ENN.index, jnp.zeros((5, 3)))
    with pytest.raises(
        ValueError, match=r"`zs` must hold at least one index along its leading axis; got shape \(0, 2\)"
    ):
        Draws.given(ENN.index, jnp.zeros((0, 2)))
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer; got 0"):
        moments(ENN, X, Draws.sample(ENN.index, 3, key=jr.key(0), batch_size=0))
    with pytest.raises(ValueError, match="`index` must have a finite support .* got KeyIndex"):
        Draws.all(KeyIndex())


def test_wrong_input_shape_is_named_before_anything_compiles():
    traces = Traces()
    with pytest.raises(Exception, match="x"):
        sample(Counting(ENN, traces), jnp.zeros((3, 5)), Draws.sample(ENN.index, 2, key=jr.key(0)))
    assert traces.count == 1


def test_nan_of_the_network_is_an_error():
    table = Table([[[0.0, 1.0], [jnp.nan, 0.0]]])
    draws = Draws.all(table.index)
    for function in (marginal_log_probs, uncertainty, moments):
        assert np.isfinite(jax.tree.leaves(function(table, jnp.array([0]), draws))[0]).all()
        with pytest.raises(ValueError, match="`enn` must not output NaN; got NaN in the .* over 1 indices"):
            function(table, jnp.arange(2), draws)


def test_uncertainty_of_outputs_that_are_no_class_logits():
    # Two labels at two particles: what each of them says, summed, and never the entropies of a softmax.
    outputs = jnp.array([[[3.0, 0.0]], [[-3.0, 0.0]]])
    table = Table(outputs)
    found = uncertainty(table, jnp.arange(1), Draws.all(table.index), likelihood=Bernoulli())
    p = np.asarray(jax.nn.sigmoid(outputs[:, 0]), np.float64)
    entropy = lambda p: -p * np.log(p) - (1 - p) * np.log(1 - p)  # noqa: E731
    np.testing.assert_allclose(found.aleatoric, [entropy(p).mean(axis=0).sum()], rtol=1e-5)
    np.testing.assert_allclose(found.total, [entropy(p.mean(axis=0)).sum()], rtol=1e-5)
    for likelihood in (Gaussian(1.0), LearnedGaussian(), Poisson()):
        with pytest.raises(ValueError, match=f"finitely many outcomes for an entropy; got {type(likelihood).__name__}"):
            uncertainty(table, jnp.arange(1), Draws.all(table.index), likelihood=likelihood)
    # A regression with one output that nothing is said of.
    with pytest.raises(ValueError, match="`enn` must have at least 2 outputs for a `Categorical` likelihood; got 1"):
        uncertainty(ENN, X, Draws.sample(ENN.index, 3, key=jr.key(0)))


def test_samples_that_are_not_finite_are_an_error():
    for wrong in (jnp.nan, jnp.inf, -jnp.inf):
        table = Table([[[0.0, 1.0], [wrong, 0.0]]])
        assert np.isfinite(sample(table, jnp.array([0]), Draws.all(table.index)).outputs).all()
        with pytest.raises(ValueError, match="`enn` must output finite numbers; got NaN or infinity .* at 1 indices"):
            sample(table, jnp.arange(2), Draws.all(table.index))
        with pytest.raises(ValueError, match="`enn` must output finite numbers; got NaN or infinity .* at 2 indices"):
            sample(table, jnp.arange(2), Draws.given(table.index, jnp.zeros(2, int)))


def test_checks_hold_inside_compiled_programs():
    table = Table([[[0.0, 1.0], [jnp.nan, 0.0]]])

    @eqx.filter_jit
    def value(x, y):
        return joint_log_prob(table, x, y, Draws.all(table.index))

    assert np.allclose(value(jnp.array([0]), jnp.array([1])), -np.log1p(np.exp(-1)))
    with pytest.raises(RuntimeError, match="`y` must hold classes from 0 to 1"):
        value(jnp.array([0]), jnp.array([2]))
    with pytest.raises(RuntimeError, match="`enn` must not output NaN"):
        value(jnp.array([1]), jnp.array([1]))


def test_numpy_data_and_small_integer_labels_are_welcome():
    table = Table([[[0.0, 1.0], [3.0, 0.0]]])
    x, y = np.arange(2), np.array([1, 0], dtype=np.uint8)
    expected = -np.log1p(np.exp(-1)) - np.log1p(np.exp(-3))
    assert np.allclose(joint_log_prob(table, x, y, Draws.all(table.index)), expected)
