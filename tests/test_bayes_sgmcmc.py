"""SGLD and SGHMC: the update, the schedule, the exact posterior of a linear model, agreement of chains."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from epinet_eqx.bayes import Langevin, from_samples, run_chain, sghmc, sgld, split_r_hat

pytestmark = pytest.mark.once


class Vector(eqx.Module):
    """A module whose only parameter is a vector."""

    theta: jax.Array

    def __call__(self, x):
        return self.theta @ x[:, None]


@pytest.mark.parametrize("precondition", [False, True])
def test_step_is_the_testbeds(precondition, getkey):
    algorithm = sghmc(0.04, 0.25, momentum_decay=0.9, precondition=precondition)
    theta, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    state = algorithm.init(jnp.asarray(theta))
    for _ in range(3):
        g, eps = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,))
        state = algorithm.step(state, g, eps)
        g, eps = np.asarray(g), np.asarray(eps)
        v = 0.99 * v + 0.01 * g**2
        mass = np.sqrt(v) + 1e-7 if precondition else np.ones(2)
        m = 0.9 * m + 0.2 * g - np.sqrt(2 * 0.1 * 0.25) * np.sqrt(mass) * eps
        theta = theta - 0.2 * m / mass
    np.testing.assert_allclose(state.position, theta, rtol=1e-4)


def test_kept_samples_are_those_of_the_schedule(getkey):
    # Without temperature, a slope of 1/4 and step size 4, each step is one downward.
    samples = run_chain(
        Vector(jnp.zeros(1)),
        jnp.array([0.0, 0.25, 0.5]),
        lambda module, batch: jnp.sum(module.theta) * jnp.mean(batch),
        sgld(4.0, 0.0),
        num_steps=21,
        burn_in=4,
        thin=5,
        key=getkey(),
    )
    np.testing.assert_array_equal(samples.theta[:, 0], [-4, -9, -14, -19])


def test_batches_are_drawn_anew_at_each_step(getkey):
    data = jnp.array([1.0, 2.0, 4.0, 8.0])

    def steps(batch_size, key):
        loss = lambda module, batch: jnp.sum(module.theta) * jnp.mean(batch)  # noqa: E731
        options = dict(num_steps=40, burn_in=1, thin=1, batch_size=batch_size)
        samples = run_chain(Vector(jnp.zeros(1)), data, loss, sgld(1.0, 0.0), **options, key=key)
        return -jnp.diff(samples.theta[:, 0])

    assert set(np.asarray(steps(1, getkey()))) == {1.0, 2.0, 4.0, 8.0}
    for batch_size in (None, 4, 100):  # all examples, each once
        np.testing.assert_allclose(steps(batch_size, getkey()), 15 / 4)


@pytest.fixture(scope="module")
def regression():
    """A linear-Gaussian model: data, the mean loss with its penalty, and the exact posterior mean and precision."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2)) * [1.0, 1.5]
    y = x @ [1.0, -0.5] + 0.5 * rng.normal(size=20)
    precision = x.T @ x / 0.25 + 2 * np.eye(2)

    def loss(module, batch):
        x, y = batch
        return jnp.mean((y - x @ module.theta) ** 2) / (2 * 0.25) + 2 * jnp.sum(module.theta**2) / (2 * 20)

    data = (jnp.asarray(x, dtype=float), jnp.asarray(y, dtype=float))
    return data, loss, np.linalg.solve(precision, x.T @ y / 0.25), precision


def _moments(regression, algorithm, keys, **options):
    data, loss, mean, _ = regression
    options = dict(num_steps=4000, burn_in=1000, thin=20) | options
    start = Vector(jnp.asarray(mean, dtype=float) + 0.1)
    chains = eqx.filter_jit(eqx.filter_vmap(lambda key: run_chain(start, data, loss, algorithm, **options, key=key)))
    theta = np.asarray(chains(keys).theta, dtype=np.float64).reshape(-1, 2)
    return theta.mean(axis=0), np.cov(theta.T)


def _assert_moments(found, mean, covariance, rel):
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((found[0] - mean) / scale, 0, atol=rel)
    np.testing.assert_allclose(found[1] / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=rel)


def test_sgld_reaches_the_stationary_distribution_of_its_own_step(regression, getkey):
    _, _, mean, precision = regression
    # theta' = theta - h H (theta - mean) + sqrt(2 h T) eps: with a large step, far from the posterior, yet known.
    hessian, step_size = precision / 20, 0.4 / np.linalg.eigvalsh(precision / 20).max()
    exact = np.linalg.inv(hessian @ (np.eye(2) - step_size * hessian / 2)) / 20
    assert np.abs(exact @ precision - np.eye(2)).max() > 0.1
    found = _moments(regression, sgld(step_size, 1 / 20), jr.split(getkey(), 256))
    _assert_moments(found, mean, exact, rel=0.03)


def test_sgld_reaches_the_exact_posterior(regression, getkey):
    _, _, mean, precision = regression
    found = _moments(regression, sgld(0.005, 1 / 20), jr.split(getkey(), 256), burn_in=2000, thin=50)
    _assert_moments(found, mean, np.linalg.inv(precision), rel=0.05)


def test_sghmc_reaches_the_exact_posterior(regression, getkey):
    _, _, mean, precision = regression
    step_size, hessian = 0.003, precision / 20
    # The step is linear in (momentum, theta): its stationary covariance solves a Lyapunov equation.
    root = np.sqrt(step_size) * np.eye(2)
    momentum = np.hstack([0.9 * np.eye(2), root @ hessian])
    transition = np.vstack([momentum, np.hstack([np.zeros((2, 2)), np.eye(2)]) - root @ momentum])
    push = np.vstack([np.eye(2), -root]) * np.sqrt(2 * 0.1 / 20)
    exact = solve_discrete_lyapunov(transition, push @ push.T)[2:, 2:]
    np.testing.assert_allclose(exact @ precision, np.eye(2), atol=0.05)
    found = _moments(regression, sghmc(step_size, 1 / 20), jr.split(getkey(), 256))
    _assert_moments(found, mean, exact, rel=0.05)


def test_preconditioned_chains_reach_the_posterior(regression, getkey):
    _, _, mean, precision = regression
    found = _moments(regression, sghmc(0.003, 1 / 20, precondition=True), jr.split(getkey(), 256))
    _assert_moments(found, mean, np.linalg.inv(precision), rel=0.1)


def test_problems_run_together_as_they_run_alone(regression, getkey):
    data, loss, _, _ = regression
    key = getkey()

    def run(step_size, scale):
        batch = jax.tree.map(lambda leaf: scale * leaf, data)
        options = dict(num_steps=50, burn_in=10, thin=20, batch_size=5)
        return run_chain(Vector(jnp.zeros(2)), batch, loss, sghmc(step_size, 1 / 20), **options, key=key).theta

    step_sizes, scales = jnp.array([0.01, 1e4, 0.02]), jnp.array([1.0, 1.0, 0.5])
    together = jax.jit(jax.vmap(run))(step_sizes, scales)
    np.testing.assert_allclose(together[2], jax.jit(run)(step_sizes[2], scales[2]), rtol=1e-4)
    # The second one diverged; it says so when it becomes an ENN, and the others are none the worse.
    module = Vector(jnp.zeros(2))
    assert from_samples(module, Vector(together[0])).index.size == 3
    with pytest.raises(ValueError, match="`samples` must be finite, but a chain diverged"):
        from_samples(module, Vector(together[1]))


def test_split_r_hat_by_hand():
    values = np.array([[0.0, 2.0, 1.0, 3.0, 9.0], [4.0, 6.0, 5.0, 9.0, 9.0]])  # the odd sample is left out
    halves = np.array([[0.0, 2.0], [1.0, 3.0], [4.0, 6.0], [5.0, 9.0]])
    within, between = halves.var(axis=1, ddof=1).mean(), halves.mean(axis=1).var(ddof=1)
    expected = np.sqrt((within / 2 + between) / within)
    np.testing.assert_allclose(split_r_hat(jnp.asarray(values, dtype=float)), expected, rtol=1e-5)


def test_split_r_hat_sees_chains_that_disagree_or_drift(getkey):
    iid = jr.normal(getkey(), (2, 1000, 3))
    np.testing.assert_allclose(split_r_hat(iid), 1, atol=0.01)
    shifted = iid + jnp.array([0.0, 4.0])[:, None, None]
    np.testing.assert_allclose(split_r_hat(shifted), np.sqrt(1 + 16 / 3), rtol=0.05)
    drifting = iid + jnp.linspace(0, 8, 1000)[None, :, None]
    assert np.all(split_r_hat(drifting) > 1.5)
    constant = jnp.stack([jnp.ones((2, 10)), jnp.broadcast_to(jnp.array([[0.0], [1.0]]), (2, 10))], axis=-1)
    np.testing.assert_array_equal(split_r_hat(constant), [1, np.inf])


def test_bad_input(getkey):
    module, data = Vector(jnp.zeros(1)), jnp.ones(3)
    good = dict(num_steps=10, burn_in=5, thin=1, batch_size=None)

    def run(data=data, **options):
        loss = lambda module, batch: jnp.sum(module.theta)  # noqa: E731
        return run_chain(module, data, loss, sgld(0.1, 0.1), **(good | options), key=getkey())

    for name in ("num_steps", "burn_in", "thin", "batch_size"):
        with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; got 0"):
            run(**{name: 0})
    with pytest.raises(ValueError, match="`burn_in` must be at most `num_steps`, 10; got 11"):
        run(burn_in=11)
    with pytest.raises(ValueError, match=r"`data` must hold arrays with one batch size; got leading sizes \[2, 3\]"):
        run(data=(jnp.ones(3), jnp.ones(2)))
    with pytest.raises(ValueError, match=r"`step_size` must be finite and at least 0; got -1\.0"):
        sgld(-1.0, 0.1)
    with pytest.raises(ValueError, match=r"`temperature` must be finite and at least 0; got inf"):
        sgld(1.0, float("inf"))
    with pytest.raises(ValueError, match=r"`momentum_decay` must be in \[0, 1\); got 1\.0"):
        sghmc(1.0, 0.1, momentum_decay=1.0)
    with pytest.raises(ValueError, match=r"`preconditioner_decay` must be in \[0, 1\); got -0\.5"):
        Langevin(1.0, 0.1, preconditioner_decay=-0.5)
    with pytest.raises(ValueError, match="`values` must have at least 4 samples per chain; got 3"):
        split_r_hat(jnp.ones((2, 3)))
