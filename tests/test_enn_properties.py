"""Properties of every kind of ENN, in any size and precision: the answer is right, or a sentence.

The outputs at given indices are the facts, as NumPy arrays in double precision; what `predict` says of them is computed
anew, by enumeration. `pytest -m long` tries every kind in many sizes and precisions.
"""

import itertools
import math
import re

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from enn_families import FAMILIES, cast
from hypothesis import given, settings
from hypothesis import strategies as st

import epinet_eqx as epi
from epinet_eqx import predict
from epinet_eqx.likelihoods import Gaussian
from epinet_eqx.metrics import dyadic_log_loss, marginal_log_loss

pytestmark = pytest.mark.once

# The same examples in each run, so that their programs are found among the compiled ones: compiling takes all the time.
QUICK = settings(derandomize=True, deadline=None, database=None, max_examples=10)
LONG = settings(QUICK, max_examples=40)

SENTENCE = r"`\w+` must .*; got .*"
TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 1e-4, "float64": 1e-9}

# Softmax of one class, and noise within the classes, leave these nothing to say.
NEEDS_CLASSES = ("pitman-yor",)
# Indices that are contracted, that are particles, and that are noise of the outputs.
SOME = ("epinet", "ensemble", "heteroscedastic")


@pytest.fixture(autouse=True)
def forget_programs():
    """Forget compiled programs: a process may hold only so many of them."""
    yield
    jax.clear_caches()


@st.composite
def sizes(draw):
    """Input dimension, classes, width, batch, number of indices, and how they are computed in parts."""
    return {
        "in_dim": draw(st.sampled_from([1, 3, 4])),
        "num_classes": draw(st.sampled_from([1, 2, 3, 5])),
        "width": draw(st.sampled_from([1, 3, 7])),
        "batch": draw(st.sampled_from([1, 2, 3])),
        "num_samples": draw(st.sampled_from([1, 4, 7])),
        "chunk_size": draw(st.sampled_from([1, 3, 16])),
        "batch_size": draw(st.sampled_from([None, 1, 2])),
        "labels": draw(st.sampled_from(["int8", "uint8", "int32"])),
        "seed": draw(st.integers(0, 3)),
    }


def log_softmax(outputs):
    return outputs - np.logaddexp.reduce(outputs, axis=-1, keepdims=True)


def log_mean(terms):
    return np.logaddexp.reduce(terms, axis=0) - np.log(len(terms))


def check_classes(enn, x, y, draws, log_p, close):
    """Raise unless predictions of classes are what these log-probabilities at each index imply."""
    marginal = predict.marginal_log_probs(enn, x, draws)
    close(marginal, log_mean(log_p))
    close(np.logaddexp.reduce(np.asarray(marginal, np.float64), axis=1), 0)
    table = np.asarray(predict.joint_log_probs(enn, x, draws), np.float64)
    close(np.logaddexp.reduce(table.ravel()), 0)
    for labels in itertools.product(range(log_p.shape[2]), repeat=len(x)):
        close(table[labels], log_mean(sum(log_p[:, t, label] for t, label in enumerate(labels))))
    close(predict.joint_log_prob(enn, x, y, draws), table[tuple(np.asarray(y))])
    loss = marginal_log_loss(enn, x, y, draws).mean
    close(loss, -np.mean([log_mean(log_p)[t, label] for t, label in enumerate(y)]))
    if len(x) == 2:
        # Of three draws from two anchors, k fall on the first.
        first, second = (log_p[:, anchor, int(y[anchor])] for anchor in (0, 1))
        cases = [math.comb(3, k) / 8 * log_mean(k * first + (3 - k) * second) for k in range(4)]
        close(dyadic_log_loss(enn, x, y, draws, tau=3).mean, -sum(cases))


def check(enn, x, draws, num_classes, labels, tolerance):
    """Raise unless predictions are what the outputs at the indices of `draws` imply."""
    zs = draws.indices()
    embeddings = jax.vmap(enn.embed)(x)
    outputs = jax.vmap(enn.heads, in_axes=(0, None), out_axes=1)(embeddings, zs)
    assert outputs.shape == (draws.num_samples, len(x), num_classes)
    assert jnp.issubdtype(outputs.dtype, jnp.floating)
    facts = np.asarray(outputs, np.float64)
    assert np.isfinite(facts).all()
    close = lambda a, b: np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=tolerance, atol=tolerance)  # noqa: E731
    # One index at a time, and the outputs that `sample` returns.
    first = jax.tree.map(lambda leaf: leaf[-1], embeddings)
    for number in (0, draws.num_samples - 1):
        close(enn.head(first, zs[number]), facts[number, -1])
    close(predict.sample(enn, x, draws).outputs, facts)
    y = (np.arange(len(x)) % num_classes).astype(labels)
    if num_classes == 1:
        # Softmax of a single output is one whatever it says; as the mean of a target it says something.
        for function, arguments in (
            (predict.marginal_log_probs, ()),
            (predict.joint_log_probs, ()),
            (predict.joint_log_prob, (y,)),
            (marginal_log_loss, (y,)),
        ):
            with pytest.raises(ValueError, match=SENTENCE):
                function(enn, x, *arguments, draws)
        targets = np.linspace(-1, 1, len(x))
        terms = -0.5 * ((targets - facts[:, :, 0]) / 0.7) ** 2 - np.log(0.7 * np.sqrt(2 * np.pi))
        loss = marginal_log_loss(enn, x, targets, draws, likelihood=Gaussian(0.7))
        close(loss.mean, -np.mean(log_mean(terms)))
    else:
        check_classes(enn, x, y, draws, log_softmax(facts), close)
    moments = predict.moments(enn, x, draws)
    close(moments.mean, facts.mean(axis=0))
    close(moments.variance, facts.var(axis=0))


def attempt(family, size, *, dtype="float32", cast_parameters=False):
    """Make an ENN and check it; only the kinds that need several classes may refuse one, by a sentence."""
    key = jr.fold_in(jr.key(11), size["seed"])
    # Inputs in double precision do not make parameters double.
    tolerance = TOLERANCE[dtype] if cast_parameters or dtype != "float64" else TOLERANCE["float32"]
    tolerance = TOLERANCE["bfloat16"] if family == "half precision" else tolerance
    with jax.numpy_dtype_promotion("standard"):
        try:
            enn = FAMILIES[family](size["in_dim"], size["num_classes"], size["width"], key=jr.fold_in(key, 0))
        except ValueError as error:
            assert re.search(SENTENCE, str(error)), f"not a sentence of ours: {error}"
            assert family in NEEDS_CLASSES and size["num_classes"] == 1
            return
        enn = cast(enn, dtype) if cast_parameters else enn
        x = jr.normal(jr.fold_in(key, 1), (size["batch"], size["in_dim"])).astype(dtype)
        options = {"chunk_size": size["chunk_size"], "batch_size": size["batch_size"]}
        draws = epi.Draws.sample(enn.index, size["num_samples"], key=jr.fold_in(key, 2), **options)
        check(enn, x, draws, size["num_classes"], size["labels"], tolerance)
        if enn.index.support() is not None:
            every = epi.Draws.all(enn.index, **options)
            assert len(np.unique(np.asarray(every.indices()))) == every.num_samples
            check(enn, x, every, size["num_classes"], size["labels"], tolerance)
        with pytest.raises(ValueError, match="`x` must not be empty"):
            predict.marginal_log_probs(enn, x[:0], draws)


@QUICK
@given(st.sampled_from(sorted(FAMILIES)), sizes())
def test_predictions_are_what_the_outputs_imply(family, size):
    attempt(family, size)


SIZE = {"in_dim": 3, "num_classes": 3, "width": 7, "batch": 2, "num_samples": 4, "chunk_size": 3, "seed": 0}
SIZE |= {"batch_size": None, "labels": "uint8"}


@pytest.mark.parametrize("family", SOME)
@pytest.mark.parametrize(("dtype", "cast_parameters"), [("bfloat16", False), ("bfloat16", True), ("float16", True)])
def test_half_precision(family, dtype, cast_parameters):
    attempt(family, SIZE, dtype=dtype, cast_parameters=cast_parameters)


@pytest.mark.parametrize("family", SOME)
def test_double_precision(family):
    with jax.enable_x64(True):
        attempt(family, SIZE, dtype="float64", cast_parameters=True)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
@LONG
@given(sizes(), st.sampled_from(sorted(TOLERANCE)), st.booleans())
def test_many_sizes_and_precisions(family, size, dtype, cast_parameters):
    with jax.enable_x64(dtype == "float64"):
        attempt(family, size, dtype=dtype, cast_parameters=cast_parameters)
    jax.clear_caches()
