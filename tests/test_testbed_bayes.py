"""The agent `bayes`: its sampler against a dense grid and against importance sampling, its calibration, its shapes."""

import functools as ft
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.testbed import BayesAgent, GenerativeModel, find_setting, generate_problems, problem_keys
from epinet_eqx.testbed.agents._bayes import _logits
from epinet_eqx.testbed.agents._tempering import TemperingPlan, tempered_hmc
from reproduce.stats import uniformity

pytestmark = pytest.mark.once

PLAN = TemperingPlan(
    num_chains=200,
    num_samples=10,
    moves_per_stage=3,
    burn_in=4,
    thin=2,
    trajectory=1.5,
    max_leaps=16,
    acceptance=0.8,
    effective_share=0.7,
    chunk=200,
)
BOUNDS = jnp.array([2.0, jnp.inf, 2.0])
INPUTS = jnp.linspace(-1.5, 1.5, 8)


def unit(position, x):
    """Return the output of a network with one hidden unit: weight, bias, weight."""
    return position[2] * jax.nn.relu(position[0] * x + position[1]) / 0.2


def log_likelihood(labels, position):
    return jnp.sum(jax.nn.log_sigmoid(labels * unit(position, INPUTS)))


@jax.jit
def sample(labels, key):
    found = tempered_hmc(ft.partial(log_likelihood, labels), BOUNDS, PLAN, key=key)
    return found.positions, found.log_evidence


def test_one_hidden_unit_agrees_with_a_dense_grid(getkey):
    labels = jnp.array([1.0, 1, -1, 1, -1, 1, 1, 1])
    edges = [jnp.linspace(-bound, bound, 121) for bound in (2.0, 5.0, 2.0)]
    grid = jnp.stack(jnp.meshgrid(*edges, indexing="ij"), axis=-1).reshape(-1, 3)
    log_prior = -0.5 * jnp.sum(grid**2, axis=1)
    log_joint = log_prior + jax.vmap(ft.partial(log_likelihood, labels))(grid)
    weights = jax.nn.softmax(log_joint)
    x = jnp.array([-1.0, 0.1, 1.2])
    exact = weights @ jax.nn.sigmoid(jax.vmap(lambda position: unit(position, x))(grid))
    positions, log_evidence = sample(labels, getkey())
    found = jnp.mean(jax.nn.sigmoid(jax.vmap(lambda p: unit(p, x))(positions.reshape(-1, 3))), axis=0)
    assert jnp.max(jnp.abs(found - exact)) < 0.03
    evidence = jax.nn.logsumexp(log_joint) - jax.nn.logsumexp(log_prior)
    assert abs(float(log_evidence - evidence)) < 0.3
    # The prior alone, which a sampler without data would return, is far from it.
    prior = jax.nn.softmax(log_prior) @ jax.nn.sigmoid(jax.vmap(lambda position: unit(position, x))(grid))
    assert jnp.max(jnp.abs(prior - exact)) > 0.1


def test_ranks_of_the_truth_are_uniform(getkey):
    def rank(key):
        prior_key, label_key, sample_key = jr.split(key, 3)
        truth = jr.truncated_normal(prior_key, -BOUNDS, BOUNDS)
        labels = jnp.where(jr.bernoulli(label_key, jax.nn.sigmoid(unit(truth, INPUTS))), 1.0, -1.0)
        positions = sample(labels, sample_key)[0].reshape(-1, 3)
        return jnp.mean(positions < truth[None], axis=0)

    ranks = jax.jit(lambda keys: jax.lax.map(rank, keys))(jr.split(getkey(), 100))
    for parameter in ranks.T:
        assert uniformity([float(value) for value in parameter]) > 0.001
    # Ranks among draws that are too narrow by a half are told apart.
    assert uniformity([float(value) for value in 0.5 + 2 * (ranks[:, 1] - 0.5)]) < 0.001


def test_few_labels_agree_with_importance_sampling_from_the_prior(getkey):
    setting = find_setting("d2_lambda1_rho0.1_seed0")
    problems = generate_problems([setting], key=getkey())
    agent = BayesAgent(num_chains=256, num_samples=4, burn_in=2, thin=2, max_leaps=8)
    enns, found = agent.sample(problems, keys=problem_keys([setting], key=getkey()))
    assert int(found.num_stages[0]) < 10 and 0.5 < float(found.acceptance[0]) < 1
    data = jax.tree.map(lambda leaf: leaf[0, : setting.num_train], problems.data)
    xs = jr.normal(getkey(), (6, 2))

    @jax.jit
    def prior(key):
        own = GenerativeModel(2, 2, setting.temperature, key=key)
        log_p = jax.nn.log_softmax(jax.vmap(own)(data.x))
        return jnp.sum(jnp.take_along_axis(log_p, data.y[:, None], axis=1)), jax.nn.softmax(jax.vmap(own)(xs))[:, 0]

    log_weights, probs = jax.lax.map(prior, jr.split(getkey(), 20_000), batch_size=1000)
    exact = jax.nn.softmax(log_weights) @ probs
    one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, enns)
    outputs = jax.vmap(lambda x: one.heads(x, jnp.arange(1024)))(xs)
    assert jnp.max(jnp.abs(jnp.mean(jax.nn.softmax(outputs)[..., 0], axis=1) - exact)) < 0.05
    assert float(found.log_evidence[0]) == pytest.approx(
        float(jax.nn.logsumexp(log_weights)) - math.log(20_000), abs=0.2
    )


def test_weights_stay_within_the_prior_and_other_biases_are_zero(getkey):
    setting = find_setting("d2_lambda1_rho0.1_seed0")
    problems = generate_problems([setting], key=getkey())
    agent = BayesAgent(num_chains=4, num_samples=2, burn_in=1, thin=1, max_leaps=2)
    particles: Any = agent.sample(problems, keys=problem_keys([setting], key=getkey()))[0].particles
    assert particles.temperature.shape == (1, 8)
    for layer in particles.network.layers:
        assert jnp.max(jnp.abs(layer.weight)) * math.sqrt(layer.weight.shape[-1]) <= 2 + 1e-5
    assert jnp.any(particles.network.layers[0].bias != 0)
    assert all(jnp.all(layer.bias == 0) for layer in particles.network.layers[1:])


def test_logits_of_all_inputs_are_those_of_the_model(getkey):
    model = GenerativeModel(3, 2, 0.1, key=getkey())
    biases = [jr.normal(getkey(), layer.bias.shape) for layer in model.network.layers]
    model = eqx.tree_at(lambda model: [layer.bias for layer in model.network.layers], model, biases)
    xs = jr.normal(getkey(), (5, 3))
    np.testing.assert_allclose(_logits(model, xs), jax.vmap(model)(xs).T, rtol=1e-4, atol=1e-4)
