"""Theorem 4: closed forms against the library and against simulation, and the artifact at tier smoke."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import trainable_mask
from epinet_eqx.losses import Batch, mean_loss
from reproduce import __main__ as cli
from reproduce import results, verify
from reproduce.claims import Verdict
from reproduce.experiments import linear_gaussian as lg
from reproduce.experiments.gaussian_distances import kl_divergence, wasserstein
from reproduce.experiments.thm4_training import sigma_points
from reproduce.paths import REFERENCE, Output
from reproduce.registry import REGISTRY
from reproduce.stats import log_slope

pytestmark = pytest.mark.once

ENTRY = REGISTRY["thm4"]


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    assert cli.main(["run", "--only", "thm4", "--tier", "smoke", "--out", str(root), "--quiet"]) == 0
    return Output(root=root, tier="smoke")


def make_problem(key, prior_scale=2.0):
    return lg.draw_problem(6, 3, noise_scale=0.5, prior_scale=prior_scale, key=key)


def test_no_claim_fails_and_the_exact_ones_hold(output):
    for line in results.settle([ENTRY], output):
        assert line.verdict is not Verdict.FAILS, line.claim.id
        assert line.measurement.standard_error > 0 or line.verdict is Verdict.HOLDS, line.claim.id


def test_numbers_agree_with_the_reference(output):
    comparison = verify.verify(ENTRY, output, REFERENCE)
    assert comparison.differences == ()
    assert comparison.num_rows > 100


def test_figure_is_drawn(output):
    assert output.figure("thm4", "pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(("prior_scale", "is_minimizer"), [(2.0, False), (1.0, True)])
def test_gradient_vanishes_at_the_closed_form_and_at_the_printed_one_only_for_unit_prior(
    prior_scale, is_minimizer, getkey
):
    problem = make_problem(getkey(), prior_scale)
    enn = lg.make_epinet(3, 4, prior_scale=prior_scale, key=getkey())
    loss = lg.make_loss(problem, key=getkey())
    c = np.asarray(lg.directions(loss, enn.index, 6), np.float64)
    p_0 = np.asarray(lg.prior_matrix(enn), np.float64)
    batch = Batch.of(jnp.asarray(problem.x, dtype=float), jnp.asarray(problem.y, dtype=float))

    @eqx.filter_jit
    def gradient(rows):
        params, rest = eqx.partition(lg.with_parameters(enn, rows), trainable_mask(enn))
        grads = eqx.filter_grad(lambda p: mean_loss(loss, eqx.combine(p, rest), sigma_points(4), batch))(params)
        return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(grads)]))

    closed, printed = (
        jnp.asarray(lg.as_rows(*formula(problem, c, p_0)), dtype=float)
        for formula in (lg.minimizer, lg.printed_minimizer)
    )
    assert gradient(closed) < 1e-4
    assert (gradient(printed) < 1e-4) == is_minimizer


def test_directions_are_what_the_loss_perturbs_targets_with(getkey):
    problem = make_problem(getkey())
    enn = lg.make_epinet(3, 4, prior_scale=2.0, key=getkey())
    loss = lg.make_loss(problem, key=getkey())
    c, z = lg.directions(loss, enn.index, 6), enn.index.sample(key=getkey())
    scores = jnp.stack([loss.score(enn.index, z, jnp.asarray(i), 1)[0] for i in range(6)])
    assert jnp.allclose(c @ z, scores, atol=1e-5)
    assert jnp.allclose(jnp.linalg.norm(c, axis=1), 1.0, atol=1e-5)


def test_columns_of_the_prior_matrix_are_unit_vectors_and_the_epinet_is_linear(getkey):
    enn = lg.make_epinet(3, 4, prior_scale=2.0, key=getkey())
    assert jnp.allclose(jnp.linalg.norm(lg.prior_matrix(enn), axis=0), 1.0, atol=1e-5)
    rows, x, z = lg.parameters(enn), jr.normal(getkey(), (3,)), enn.index.sample(key=getkey())
    a = rows[1:] + 2.0 * np.asarray(lg.prior_matrix(enn), np.float64)
    assert jnp.allclose(enn(x, z)[0], (rows[0] + np.asarray(z) @ a) @ np.asarray(x), atol=1e-4)


def test_sigma_points_have_the_moments_of_the_index():
    points = sigma_points(5)
    assert jnp.allclose(jnp.mean(points, axis=0), 0.0, atol=1e-6)
    assert jnp.allclose(points.T @ points / len(points), jnp.eye(5), atol=1e-5)


def test_posterior_is_the_textbook_one(getkey):
    problem = make_problem(getkey())
    mean, covariance = lg.posterior(problem)
    precision = problem.x.T @ problem.x / 0.25 + np.eye(3) / 4.0
    assert np.allclose(covariance @ precision, np.eye(3))
    assert np.allclose(precision @ mean, problem.x.T @ problem.y / 0.25)


@pytest.mark.parametrize("index_dim", [2, 20])
def test_covariance_error_has_the_expected_size(index_dim, getkey):
    problem = make_problem(getkey())
    generator = np.random.default_rng(np.asarray(jr.key_data(getkey())))
    vectors = generator.standard_normal((20_000, 9, index_dim))
    vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
    c, p_0 = vectors[:, :6], np.swapaxes(vectors[:, 6:], -1, -2)
    _, covariance = lg.posterior(problem)
    found = lg.function_covariance(problem, lg.minimizer(problem, c, p_0)[1], p_0)
    squares = np.sum((found - covariance) ** 2, axis=(1, 2)) / np.sum(covariance**2)
    expected = lg.expected_covariance_error(problem) ** 2 / index_dim
    assert abs(np.mean(squares) - expected) < 5 * np.std(squares) / math.sqrt(len(squares))


def test_distances_of_gaussians():
    truth, prediction = np.diag([1.0, 4.0]), np.diag([4.0, 9.0])
    expected = sum(0.5 * (t / p - 1 - math.log(t / p)) for t, p in ((1.0, 4.0), (4.0, 9.0)))
    assert kl_divergence(truth, prediction) == pytest.approx(expected)
    assert kl_divergence(truth, truth) == pytest.approx(0.0, abs=1e-12)
    assert wasserstein(truth, prediction) == pytest.approx(math.sqrt(2.0))
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    turned = rotation @ truth @ rotation.T
    assert kl_divergence(turned, rotation @ prediction @ rotation.T) == pytest.approx(expected)
    # A Gaussian without width in one direction is as far away as the other is wide there.
    assert wasserstein(truth, np.diag([1.0, 0.0])) == pytest.approx(2.0)


def test_slope_of_a_power_law():
    dims = (4, 16, 64)
    curves = [
        [{"index_dim": d, "value": height * d**-0.5, "standard_error": 0.1 * height * d**-0.5} for d in dims]
        for height in (1.0, 7.0)
    ]
    found = log_slope(curves, "index_dim")
    assert found.value == pytest.approx(-0.5)
    assert found.standard_error == pytest.approx(0.1 / math.sqrt(4 * math.log(4) ** 2))
