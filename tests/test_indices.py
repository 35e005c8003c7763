"""Reference distributions: shapes, moments, prefixes, scores."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from epinet_eqx.indices import (
    DirichletIndex,
    GaussianIndex,
    GaussianWithUnitIndex,
    ParticleIndex,
    ScaledGaussianIndex,
)
from epinet_eqx.indices._vectors import unit_vector

pytestmark = pytest.mark.once

INDICES = {
    "gaussian": lambda: GaussianIndex(4),
    "scaled": lambda: ScaledGaussianIndex(6),
    "unit": lambda: GaussianWithUnitIndex(5),
    "particle": lambda: ParticleIndex(7),
    "dirichlet": lambda: DirichletIndex(3, 2.0),
}
SCORED = [name for name in INDICES if name != "dirichlet"]


@pytest.mark.parametrize("name", INDICES)
def test_sample_has_the_shape_the_index_says(name, getkey):
    index = INDICES[name]()
    assert index.sample(key=getkey()).shape == index.shape
    assert index.sample_many(11, key=getkey()).shape == (11, *index.shape)


@pytest.mark.parametrize("name", INDICES)
def test_a_longer_sequence_begins_with_the_shorter(name, getkey):
    index, key = INDICES[name](), getkey()
    longer = index.sample_many(10, key=key)
    assert jnp.array_equal(longer[:4], index.sample_many(4, key=key))
    assert jnp.array_equal(longer[4:], index.sample_many(6, key=key, start=4))


def test_gaussian_moments(getkey):
    zs = GaussianIndex(3).sample_many(20_000, key=getkey())
    assert jnp.allclose(jnp.mean(zs, axis=0), 0.0, atol=0.03)
    assert jnp.allclose(jnp.cov(zs.T), jnp.eye(3), atol=0.05)


def test_scaled_gaussian_has_expected_squared_length_one(getkey):
    zs = ScaledGaussianIndex(6).sample_many(20_000, key=getkey())
    assert jnp.allclose(jnp.mean(jnp.sum(zs**2, axis=1)), 1.0, atol=0.02)


def test_unit_entry_is_one(getkey):
    zs = GaussianWithUnitIndex(5).sample_many(50, key=getkey())
    assert jnp.all(zs[:, 0] == 1) and jnp.std(zs[:, 1:]) > 0.8


def test_particles_are_uniform_and_supported(getkey):
    index = ParticleIndex(4)
    zs = index.sample_many(8000, key=getkey())
    assert jnp.allclose(jnp.mean(jax.nn.one_hot(zs, 4), axis=0), 0.25, atol=0.02)
    assert jnp.array_equal(index.support(), jnp.arange(4))


def test_dirichlet_is_on_the_simplex(getkey):
    zs = DirichletIndex(3, 2.0).sample_many(5000, key=getkey())
    assert jnp.allclose(jnp.sum(zs, axis=1), 1.0, atol=1e-5) and jnp.all(zs >= 0)
    # Var of one entry of Dirichlet(a, ..., a) in d dimensions: (d - 1) / (d^2 (d a + 1)).
    assert jnp.allclose(jnp.var(zs[:, 0]), 2 / (9 * 7), rtol=0.1)


@pytest.mark.parametrize("name", SCORED)
def test_scores_are_standard_normal_and_independent_between_keys(name, getkey):
    index = INDICES[name]()
    zs = index.sample_many(500, key=getkey())
    keys = jr.split(getkey(), 400)
    scores = jax.vmap(lambda key: jax.vmap(lambda z: index.score(z, key=key))(zs))(keys)
    assert abs(jnp.mean(scores)) < 0.05
    assert abs(jnp.var(scores) - 1) < 0.1
    # For one z, scores of different keys are spread as a standard normal; a shared score would have no spread.
    assert abs(jnp.mean(jnp.var(scores, axis=0)) - 1) < 0.1


def test_gaussian_score_is_the_projection_on_a_unit_vector(getkey):
    index, key = GaussianIndex(4), getkey()
    z = index.sample(key=getkey())
    direction = jax.grad(lambda z: index.score(z, key=jr.clone(key)))(z)
    assert jnp.allclose(jnp.linalg.norm(direction), 1.0, atol=1e-6)
    assert jnp.allclose(index.score(z, key=jr.clone(key)), direction @ z, atol=1e-6)


def test_unit_vector_is_isotropic(getkey):
    vectors = jax.vmap(lambda key: unit_vector(3, key=key))(jr.split(getkey(), 5000))
    assert jnp.allclose(vectors.T @ vectors / 5000.0, jnp.eye(3) / 3, atol=0.02)


def test_dirichlet_has_no_score(getkey):
    index = DirichletIndex(3)
    with pytest.raises(TypeError, match="Dirichlet index has no standard normal score"):
        index.score(index.sample(key=getkey()), key=getkey())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianIndex(0), "`index_dim` must be a positive integer; got 0"),
        (lambda: ParticleIndex(-1), "`num_particles` must be a positive integer; got -1"),
        (lambda: GaussianWithUnitIndex(1), "`index_dim` must be at least 2"),
        (lambda: ScaledGaussianIndex(2, -1.0), "`scale` must be finite and at least 0; got -1.0"),
        (lambda: DirichletIndex(2, 0.0), "`concentration` must be finite and at least 1e-06; got 0.0"),
        (lambda: GaussianIndex(2).sample_many(0, key=jr.key(0)), "`num_samples` must be a positive integer; got 0"),
    ],
)
def test_bad_sizes_are_sentences(make, message):
    with pytest.raises(ValueError, match=message):
        make()
