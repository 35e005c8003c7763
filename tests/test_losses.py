"""Losses: identities with their literal form, closed forms, distributions of bootstraps, bad input."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.scipy.special import ndtri

from epinet_eqx import AbstractENN, attach, trainable_mask
from epinet_eqx.bayes import Ensemble
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import Epinet, NetworkEnsemble, Reads
from epinet_eqx.indices import DirichletIndex, GaussianIndex
from epinet_eqx.losses import (
    L2,
    AbstractPenalty,
    Batch,
    BernoulliBootstrap,
    CrossEntropy,
    ExponentialBootstrap,
    PoissonBootstrap,
    SquaredLoss,
    mean_data_loss,
    mean_loss,
)
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once


def make_epinet(key):
    base_key, key = jr.split(key)
    return attach(MLP(3, 4, (6,), key=base_key), out_size=4, index_dim=5, hidden=(7,), freeze=False, key=key)


def make_ensemble(key):
    return Ensemble(eqx.filter_vmap(lambda k: MLP(3, 4, (6,), key=k))(jr.split(key, 3)))


def make_batch(key, regression=False, size=6):
    x_key, y_key = jr.split(key)
    y = jr.normal(y_key, (size, 4)) if regression else jr.randint(y_key, (size,), 0, 4)
    # Numbers as in the middle of a larger data set.
    return Batch(jr.normal(x_key, (size, 3)), y, jnp.arange(size) * 3 + 40)


class FirstEntry(AbstractPenalty):
    """A penalty that depends on the index."""

    def __call__(self, enn, params, z):
        return jnp.square(jnp.ravel(z)[0]).astype(float)


LOSSES = {
    "cross-entropy": (make_epinet, lambda key: CrossEntropy(l2=0.1, label_smoothing=0.2)),
    "Bernoulli": (make_epinet, lambda key: CrossEntropy(l2=0.1, bootstrap=BernoulliBootstrap(0.4, key=key))),
    "exponential": (
        make_ensemble,
        lambda key: CrossEntropy(penalty=FirstEntry(), bootstrap=ExponentialBootstrap(key=key)),
    ),
    "Gaussian": (make_epinet, lambda key: SquaredLoss(l2=0.1, noise_scale=0.5, key=key)),
    "Gaussian and Poisson": (
        make_ensemble,
        lambda key: SquaredLoss(noise_scale=0.5, bootstrap=PoissonBootstrap(key=jr.fold_in(key, 1)), key=key),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_mean_is_that_of_single_losses(name, getkey):
    make, make_loss = LOSSES[name]
    enn, loss = make(getkey()), make_loss(getkey())
    batch = make_batch(getkey(), regression=isinstance(loss, SquaredLoss))
    zs = enn.index.sample_many(4, key=getkey())

    @eqx.filter_jit
    def both(loss, enn, zs, batch):
        singles = jax.vmap(lambda z: jax.vmap(lambda x, y, i: loss(enn, z, x, y, i))(batch.x, batch.y, batch.i))(zs)
        return mean_loss(loss, enn, zs, batch), jnp.mean(singles)

    mean, expected = both(loss, enn, zs, batch)
    assert jnp.allclose(mean, expected, rtol=1e-5, atol=1e-5)


def test_cross_entropy_of_equal_logits_is_the_log_of_their_number(getkey):
    loss, score = CrossEntropy(l2=2.0), jnp.zeros(4)
    assert jnp.allclose(loss.data_loss(jnp.full(4, 3.0), jnp.array(2), score), math.log(4))
    # Eq. (7) penalizes what is trained, and nothing else.
    enn = make_epinet(getkey())
    trained = [leaf for leaf in jax.tree.leaves(eqx.filter((enn.base, enn.learnable), eqx.is_array))]
    squares = sum(float(jnp.sum(leaf**2)) for leaf in trained)
    z, x = enn.index.sample(key=getkey()), jr.normal(getkey(), (3,))
    total = loss(enn, z, x, jnp.array(1), jnp.array(0))
    assert jnp.allclose(total - loss.data_loss(enn(x, z), jnp.array(1), score), 2.0 * squares, rtol=1e-5)


def test_cross_entropy_is_finite_on_confident_networks():
    logits = jnp.array([120.0, 0.0])
    loss = CrossEntropy()
    assert loss.data_loss(logits, jnp.array(1), jnp.zeros(2)) == 120
    assert loss.data_loss(logits, jnp.array(0), jnp.zeros(2)) == 0
    gradient = jax.grad(loss.data_loss)(logits, jnp.array(1), jnp.zeros(2))
    assert jnp.allclose(gradient, jnp.array([1.0, -1.0]))


def test_label_smoothing_is_that_of_optax(getkey):
    logits = 5 * jr.normal(getkey(), (4,))
    targets = optax.smooth_labels(jax.nn.one_hot(2, 4), 0.3)
    smoothed = CrossEntropy(label_smoothing=0.3).data_loss(logits, jnp.array(2), jnp.zeros(4))
    assert jnp.allclose(smoothed, optax.softmax_cross_entropy(logits, targets), rtol=1e-5)
    assert jnp.allclose(targets, jnp.array([0.075, 0.075, 0.775, 0.075]))


@pytest.mark.parametrize("label", [-1, 4])
def test_label_that_is_no_class_is_not_a_number(label):
    assert jnp.isnan(CrossEntropy().data_loss(jnp.zeros(4), jnp.array(label), jnp.zeros(4)))


def scores(index, key, num_examples, zs):
    """Return the scores that a bootstrap sees."""

    def score(i, z):
        return index.score(z, key=jr.fold_in(key, i))

    return jax.vmap(lambda i: jax.vmap(lambda z: score(i, z))(zs))(jnp.arange(num_examples))


def test_bernoulli_bootstrap_omits_the_whole_loss(getkey):
    enn, key, batch = make_epinet(getkey()), getkey(), make_batch(getkey(), size=20)
    plain, loss = CrossEntropy(l2=0.3), CrossEntropy(l2=0.3, bootstrap=BernoulliBootstrap(0.3, key=key))
    z = enn.index.sample(key=getkey())
    kept = []
    for n in range(20):
        direction = jr.normal(jr.fold_in(key, batch.i[n]), (5,))
        kept.append(bool(direction @ z / jnp.linalg.norm(direction) > ndtri(0.3)))
        value = loss(enn, z, batch.x[n], batch.y[n], batch.i[n])
        # Eq. (8): zero, penalty included, or the loss of Eq. (7).
        assert value == (plain(enn, z, batch.x[n], batch.y[n], batch.i[n]) if kept[-1] else 0)
    assert 0 < sum(kept) < 20


@pytest.mark.parametrize("p", [0.0, 0.3, 0.9])
def test_bernoulli_bootstrap_omits_with_probability_p(p, getkey):
    index, bootstrap = GaussianIndex(8), BernoulliBootstrap(p, key=getkey())
    zs = index.sample_many(200, key=getkey())
    weights = jax.vmap(jax.vmap(bootstrap.weight))(scores(index, bootstrap.key, 200, zs))
    assert jnp.all((weights == 0) | (weights == 1))
    # Weights of one z depend on each other through its length: 200 independent groups, not 40,000.
    assert abs(float(jnp.mean(weights == 0)) - p) < 0.03
    assert p > 0 or jnp.all(weights == 1)


def test_bootstraps_of_different_keys_are_independent():
    # Neighboring seeds with shifted numbers are where `seed + i` would collide.
    index = GaussianIndex(8)
    zs = index.sample_many(300, key=jr.key(7))
    first, second = (scores(index, jr.key(seed), 51, zs) for seed in (3, 4))
    for shift in (0, 1):
        correlation = jnp.mean(first[shift : 50 + shift] * second[:50])
        assert abs(float(correlation)) < 0.1
        assert not jnp.any(jnp.all(jnp.isclose(first[shift : 50 + shift], second[:50]), axis=1))


@pytest.mark.parametrize("make", [ExponentialBootstrap, PoissonBootstrap])
def test_weights_have_mean_and_variance_one(make, getkey):
    weight = jax.vmap(make(key=getkey()).weight)
    # Scores at the midpoints of equal steps of probability: the distribution without noise.
    grid = (jnp.arange(20_000.0) + 0.5) / 20_000
    weights = weight(ndtri(grid))
    assert jnp.allclose(jnp.mean(weights), 1, atol=1e-3)
    assert jnp.allclose(jnp.var(weights), 1, atol=5e-3)
    if make is ExponentialBootstrap:
        assert jnp.allclose(weights, -jnp.log1p(-grid), rtol=1e-2, atol=1e-5)
    else:
        frequencies = jnp.array([jnp.mean(weights == k) for k in range(5)])
        expected = jnp.array([math.exp(-1) / math.factorial(k) for k in range(5)])
        assert jnp.allclose(frequencies, expected, atol=1e-4)
    assert jnp.all(jnp.isfinite(weight(jnp.array([-30.0, 30.0]))))


def test_squared_loss_is_that_of_equation_9(getkey):
    base_key, key = jr.split(getkey())
    base = MLP(3, 1, (6,), key=base_key)
    enn = attach(base, out_size=1, index_dim=5, hidden=(7,), freeze=False, key=key)
    noise_key, i = getkey(), jnp.array(17)
    loss = SquaredLoss(l2=0.1, noise_scale=0.7, key=noise_key)
    z, x = enn.index.sample(key=getkey()), jr.normal(getkey(), (3,))
    direction = jr.normal(jr.fold_in(noise_key, 17), (5,))
    perturbation = 0.7 * direction @ z / jnp.linalg.norm(direction)
    penalty = L2(0.1)(enn, eqx.filter(enn, trainable_mask(enn)), z)
    expected = (enn(x, z)[0] - 2.0 - perturbation) ** 2 + penalty
    assert jnp.allclose(loss(enn, z, x, jnp.array(2.0), i), expected, rtol=1e-5)
    assert jnp.allclose(loss(enn, z, x, jnp.array([2.0]), i), expected, rtol=1e-5)


def test_outputs_and_examples_are_perturbed_independently(getkey):
    index, loss = GaussianIndex(8), SquaredLoss(noise_scale=1.0, key=getkey())
    zs = index.sample_many(500, key=getkey())
    found = jax.vmap(lambda z: jax.vmap(lambda i: loss.score(index, z, i, 3))(jnp.arange(4)))(zs).reshape(500, 12)
    assert jnp.allclose(jnp.var(found, axis=0), 1, atol=0.3)
    # Directions in eight dimensions are seldom close.
    correlation = jnp.corrcoef(found.T) - jnp.eye(12)
    assert float(jnp.max(jnp.abs(correlation))) < 0.95


def linear_epinet(key, in_dim, index_dim):
    """Return the linear-Gaussian epinet of Section 4.3, with biases."""

    def linear(key):
        return MLP(in_dim, 1, (), feature_layers=(), key=key)

    base, learnable, prior = jr.split(key, 3)
    learned = Reads(NetworkEnsemble(linear, index_dim, key=learnable), "input")
    fixed = Prior(Reads(NetworkEnsemble(linear, index_dim, key=prior), "input"), 0.8)
    return Epinet(linear(base), learned, (fixed,), GaussianIndex(index_dim))


def test_gradient_vanishes_at_the_least_squares_solution(getkey):
    n, dz, sigma, l2 = 12, 4, 0.5, 0.05
    x, y, key = jr.normal(getkey(), (n, 3)), jr.normal(getkey(), (n,)), getkey()
    enn, loss = linear_epinet(getkey(), 3, dz), SquaredLoss(l2=l2, noise_scale=sigma, key=key)

    def minimizer(targets):
        design = jnp.concatenate([x, jnp.ones((n, 1))], axis=1)
        normal = design.T @ design / n + l2 * jnp.eye(4)
        return jnp.linalg.solve(normal, design.T @ targets / n)

    # The trainable part is linear in z, so the expected loss of Eq. (9) falls apart into one ridge regression for the
    # base network and one for each entry of z, whose targets are what noise and prior leave of it.
    directions = jax.vmap(lambda i: jr.normal(jr.fold_in(key, i), (dz,)))(jnp.arange(n))
    noise = sigma * directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    prior = jax.vmap(lambda x: enn.priors[0].enn.content.enn.embed(x))(x)[:, :, 0]
    zeta, eta = minimizer(y), minimizer(noise - 0.8 * prior)
    enn = eqx.tree_at(
        lambda enn: [leaf for net in (enn.base, enn.learnable.enn.members) for leaf in jax.tree.leaves(net)],
        enn,
        [zeta[None, :3], zeta[3:], eta.T[:, None, :3], eta.T[:, 3:]],
    )
    # These points have the mean and the covariance of a standard normal.
    zs = math.sqrt(dz) * jnp.concatenate([jnp.eye(dz), -jnp.eye(dz)])
    gradient = eqx.filter_jit(eqx.filter_grad(lambda enn: mean_loss(loss, enn, zs, Batch.of(x, y))))(enn)
    leaves = jax.tree.leaves(eqx.filter(gradient, trainable_mask(enn)))
    assert len(leaves) == 4
    assert all(float(jnp.max(jnp.abs(leaf))) < 1e-5 for leaf in leaves)


def test_data_loss_alone_has_no_penalty_weights_or_noise(getkey):
    enn, batch = make_epinet(getkey()), make_batch(getkey(), regression=True)
    zs = enn.index.sample_many(4, key=getkey())
    loss = SquaredLoss(l2=3.0, noise_scale=2.0, bootstrap=BernoulliBootstrap(0.5, key=getkey()), key=getkey())
    expected = mean_loss(SquaredLoss(), enn, zs, batch)
    for chunk_size in (4, 100):
        assert jnp.allclose(mean_data_loss(loss, enn, zs, batch, chunk_size=chunk_size), expected, rtol=1e-5)


class EpinetOnly(AbstractENN):
    """An epinet without the output of its base network."""

    epinet: Epinet

    @property
    def index(self):
        return self.epinet.index

    def embed(self, x):
        embedding = self.epinet.embed(x)
        return embedding._replace(base=jnp.zeros_like(embedding.base))

    def heads(self, embedding, zs):
        return self.epinet.heads(embedding, zs)


def test_gradient_does_not_reach_the_base_through_its_features(getkey):
    enn, batch = make_epinet(getkey()), make_batch(getkey())
    zs = enn.index.sample_many(4, key=getkey())
    gradients = eqx.filter_jit(eqx.filter_grad(lambda enn: mean_loss(CrossEntropy(), enn, zs, batch)))
    gradient = gradients(EpinetOnly(enn)).epinet
    assert all(not jnp.any(leaf) for leaf in jax.tree.leaves((gradient.base, gradient.priors)))
    assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(gradient.learnable))


def test_sweeping_scalars_compiles_once(getkey):
    enn, key = linear_epinet(getkey(), 3, 4), getkey()
    zs = enn.index.sample_many(2, key=getkey())
    batch = Batch.of(jr.normal(getkey(), (5, 3)), jnp.zeros(5))
    traces = 0

    @eqx.filter_jit
    def value(loss):
        nonlocal traces
        traces += 1
        return mean_loss(loss, enn, zs, batch)

    def make(l2, noise_scale, p):
        return SquaredLoss(l2=l2, noise_scale=noise_scale, bootstrap=BernoulliBootstrap(p, key=key), key=getkey())

    values = {float(value(make(*scalars))) for scalars in [(0.0, 0.0, 0.0), (0.1, 1.0, 0.2), (1.0, 2.0, 0.5)]}
    assert traces == 1 and len(values) == 3

    logits = jnp.array([1.0, 2.0])
    smoothings = jnp.array([0.0, 0.5])
    losses = eqx.filter_vmap(lambda e: CrossEntropy(label_smoothing=e))(smoothings)
    swept = eqx.filter_vmap(lambda loss: loss.data_loss(logits, jnp.array(0), jnp.zeros(2)))(losses)
    assert jnp.allclose(swept, jnp.array([1.313262, 1.063262]), atol=1e-5)


@pytest.mark.usefixtures("as_user")
def test_bad_losses_are_refused(getkey):
    key = getkey()
    for p in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=rf"`p` must be in \[0, 1\); got {p}"):
            BernoulliBootstrap(p, key=key)
    with pytest.raises(ValueError, match=r"`l2` must be finite and at least 0; got -1\.0"):
        CrossEntropy(l2=-1.0)
    with pytest.raises(ValueError, match=r"`l2` must be left at 0 where a `penalty` is given; got 0\.5"):
        CrossEntropy(l2=0.5, penalty=FirstEntry())
    with pytest.raises(ValueError, match=r"`label_smoothing` must be from 0 to 1; got 1\.5"):
        CrossEntropy(label_smoothing=1.5)
    with pytest.raises(ValueError, match=r"`noise_scale` must be finite and at least 0; got inf"):
        SquaredLoss(noise_scale=math.inf, key=key)
    with pytest.raises(ValueError, match=r"`key` must be given with a `noise_scale` above zero, 0\.5; got None"):
        SquaredLoss(noise_scale=0.5)
    with pytest.raises(TypeError, match="no standard normal score"):
        loss = CrossEntropy(bootstrap=PoissonBootstrap(key=key))
        loss.weight(DirichletIndex(3), jnp.ones(3) / 3, jnp.array(0))


@pytest.mark.usefixtures("as_user")
def test_bad_examples_are_refused():
    with pytest.raises(ValueError, match=r"must hold arrays with one batch size; got leading sizes \[3, 4\]"):
        Batch.of(jnp.zeros((4, 2)), jnp.zeros(3))
    with pytest.raises(ValueError, match=r"must hold arrays with one batch size; got leading sizes \[4, 5\]"):
        Batch(jnp.zeros((4, 2)), jnp.zeros(4), jnp.arange(5))
    with pytest.raises(ValueError, match="must not be empty"):
        Batch.of(jnp.zeros((0, 2)), jnp.zeros(0))
    with pytest.raises(ValueError, match="must hold arrays with a leading batch axis"):
        Batch.of(jnp.zeros((4, 2)), jnp.zeros(()))
    with pytest.raises(ValueError, match="`y` must hold classes from 0 to 2; got values from 0 to 3"):
        CrossEntropy().check_targets(jnp.arange(4), 3)
    for y in (jnp.zeros(4), jnp.zeros((4, 1), dtype=int)):
        with pytest.raises(ValueError, match=r"`y` must hold one integer label per example; got shape .* of"):
            CrossEntropy().check_targets(y, 3)
    for y in (jnp.arange(4), jnp.zeros(4), jnp.zeros((4, 3))):
        with pytest.raises(ValueError, match="`y` must hold 2 floating-point outputs per example; got shape"):
            SquaredLoss().check_targets(y, 2)
    with pytest.raises(ValueError, match="`y` must be finite; got 1 non-finite of 2 values"):
        SquaredLoss().check_targets(jnp.array([1.0, jnp.nan]), 1)
    SquaredLoss().check_targets(jnp.zeros((4, 1)), 1)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8])
def test_labels_of_a_type_that_is_too_small_for_the_classes(dtype, getkey):
    output = jr.normal(getkey(), (1000,))
    for label in (5, 100):
        found = CrossEntropy().data_loss(output, jnp.asarray(label, dtype=dtype), jnp.zeros(1000))
        assert jnp.allclose(found, -jax.nn.log_softmax(output)[label], rtol=1e-5)


def test_integers_beyond_the_type_that_stores_them_are_refused():
    x, y, far = np.zeros((2, 1)), np.arange(2), np.array([0, 2**32 + 1])
    for name, arguments in (("y", (x, far, y)), ("i", (x, y, far)), ("x", ({"a": far}, y, y))):
        with pytest.raises(ValueError, match=f"`{name}` must hold integers from .*; got values from 0 to 4294967297"):
            Batch(*arguments)
    with pytest.raises(ValueError, match="`y` must hold integers from 0 to 4294967295, .*; got values from 0 to"):
        Batch(x, far.astype(np.uint64), y)
    assert Batch(x, np.array([0, 2**31 - 1]), y).y[1] == 2**31 - 1
    with jax.enable_x64(True):
        assert Batch(x, far, y).y[1] == 2**32 + 1


def test_numpy_examples_become_arrays():
    batch = Batch.of({"a": np.zeros((3, 2)), "b": np.arange(3)}, np.ones(3))
    assert isinstance(batch.x["a"], jax.Array) and batch.x["a"].dtype == jnp.float32
    assert jnp.array_equal(batch.i, jnp.arange(3))
