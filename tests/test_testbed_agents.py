"""The agents of the testbed: their tuned rules, training in stacks, failures."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx import named_keys, trainable_mask
from epinet_eqx._tree import count_parameters
from epinet_eqx.bayes import Deterministic
from epinet_eqx.networks import MLP
from epinet_eqx.testbed import (
    AGENTS,
    EnsembleAgent,
    EpinetAgent,
    MLPAgent,
    PriorKnowledge,
    Problem,
    Setting,
    count_nonfinite,
    evaluate,
    find_agent,
    settings,
    stack_problems,
    train_agent,
    training_groups,
)

pytestmark = pytest.mark.once

SMALL = Setting(input_dim=2, data_ratio=2, temperature=0.1, seed=0, number=7)
NOISY = Setting(input_dim=2, data_ratio=2, temperature=0.5, seed=0, number=8)
OTHER = Setting(input_dim=2, data_ratio=3, temperature=0.5, seed=1, number=9)

# What is small enough for a test, with everything that depends on the problem left as it is.
TINY = {
    "mlp": dict(num_steps=20, hidden=(4,)),
    "ensemble": dict(num_steps=20, hidden=(4,), num_particles=2),
    "dropout": dict(num_steps=20, hidden=(4,)),
    "bbb": dict(num_steps=20, hidden=(4,), num_index_samples=2),
    "hypermodel": dict(num_steps=20, hidden=(4,), num_index_samples=2),
    "ensemble+": dict(num_steps=20, hidden=(4,), num_particles=2),
    "sgmcmc": dict(num_steps=6, burn_in=2, thin=2, hidden=(4,)),
    "epinet": dict(num_steps=20, hidden=(4,), epinet_hidden=(3,), index_dim=2),
}


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Compile without optimization: many programs, each of which runs for a moment."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def tiny(name):
    return dataclasses.replace(AGENTS[name], **TINY[name])


def knowledge(input_dim=10, num_train=1000, temperature=0.01):
    return PriorKnowledge(input_dim, 2, jnp.asarray(num_train), jnp.asarray(temperature))


@pytest.mark.parametrize(
    ("name", "decay"),
    [
        ("mlp", 0.1 / 100),
        ("ensemble", 0.1 / 100 / 100),
        ("dropout", 0.1 / 100),
        ("hypermodel", 0.1 / 100),
        ("ensemble+", 0.1 / 100 / 100),
        ("sgmcmc", 10 * 0.1 / 100),
        ("epinet", 0.2 * 0.01**0.7),
    ],
)
def test_decay_is_the_testbeds(name, decay):
    # Temperature 0.01 has the root 0.1; the data ratio is 100.
    np.testing.assert_allclose(AGENTS[name].loss(knowledge()).penalty.scale, decay, rtol=1e-5)


def test_the_sweep_of_sgmcmc_doubles_the_prior_variance_for_many_inputs():
    swept = dataclasses.replace(AGENTS["sgmcmc"], adaptive_prior_variance=True)
    for input_dim, factor in ((10, 1.0), (100, 0.5)):
        known = knowledge(input_dim)
        ratio = swept.loss(known).penalty.scale / AGENTS["sgmcmc"].loss(known).penalty.scale
        np.testing.assert_allclose(ratio, factor, rtol=1e-6)


def test_divergence_of_bbb_is_scaled_as_in_the_testbed(getkey):
    loss = AGENTS["bbb"].loss(knowledge())
    np.testing.assert_allclose(loss.penalty.coefficient, 0.1 * 10 / 1000, rtol=1e-5)
    np.testing.assert_allclose(loss.penalty.sigma_1, 1.0)
    np.testing.assert_allclose(AGENTS["bbb"].init(knowledge(2), key=getkey()).sigma, 0.01, rtol=1e-4)


def test_training_plans_are_the_testbeds():
    plans = {
        "mlp": (1000, 1, 1e-3, 100),
        "ensemble": (1000, 100, 1e-3, 100),
        "dropout": (1000, 1, 1e-3, 100),
        "bbb": (1000, 8, 3e-3, 100),
        "hypermodel": (2000, 16, 1e-3, 100),
        "ensemble+": (1000, 100, 1e-3, 100),
        "epinet": (1000, 8, 1e-3, 100),
    }
    for name, plan in plans.items():
        for num_train in (10, 1000):
            assert AGENTS[name].plan(10, num_train) == plan
    assert AGENTS["epinet"].plan(10, 10_000) == (10_000, 8, 1e-3, 100)
    assert AGENTS["mlp"].plan(10, 10_000).num_steps == 1000
    assert dataclasses.replace(AGENTS["epinet"], index_dim=3).plan(10, 10).num_index_samples == 3
    varying = EnsembleAgent(num_particles=3, batch_strategy=True)
    assert [varying.plan(10, size).num_steps for size in (10, 100, 1000, 10_000)] == [200, 1000, 1000, 5000]
    chain = AGENTS["sgmcmc"]
    assert (chain.num_steps, chain.burn_in, chain.thin, chain.batch_size) == (500_000, 100_000, 1000, 100)
    assert (chain.learning_rate, chain.momentum_decay, chain.prior_variance) == (1e-4, 0.9, 0.1)


def test_networks_and_priors_are_the_testbeds(getkey):
    known = knowledge(2, 20, 0.01)

    def sizes(enn):
        trainable = count_parameters(eqx.filter(enn, trainable_mask(enn)))
        return trainable, count_parameters(enn) - trainable

    def init(agent, key):
        return eqx.filter_jit(agent.init)(known, key=key)

    mlp = init(AGENTS["mlp"], getkey())
    assert sizes(mlp) == (2802, 0)
    assert not any(jnp.any(layer.bias) for layer in mlp.network.layers)
    dropout = init(AGENTS["dropout"], getkey())
    assert sizes(dropout) == (300 + 10_100 + 202, 2) and bool(jnp.all(dropout.trunk.layers[0].bias != 0))
    np.testing.assert_allclose(dropout.network.layers[0].rate.content, 0.1)
    # Base, 60-15-15-16 epinet; 8 prior networks 2-5-5-2 and their scale.
    epinet = init(AGENTS["epinet"], getkey())
    assert sizes(epinet) == (2802 + 1411, 8 * 57 + 1)
    np.testing.assert_allclose(epinet.priors[0].scale.content, 30.0, rtol=1e-5)
    plus = init(dataclasses.replace(AGENTS["ensemble+"], num_particles=3), getkey())
    assert sizes(plus) == (3 * 2802, 3 * 2803)
    np.testing.assert_allclose(plus.particles.prior.scale.content, 30.0, rtol=1e-5)
    for network in (plus.particles.enn.network, plus.particles.prior.enn.content.network):
        assert bool(jnp.all(network.layers[0].bias != 0)) and not jnp.any(network.layers[1].bias)
    # A 2802 x 6 map with bias; the prior 2-10-2, linear in two parts of three entries; scales of prior and index.
    hypermodel = init(AGENTS["hypermodel"], getkey())
    assert sizes(hypermodel)[0] == 7 * 2802
    np.testing.assert_allclose(hypermodel.prior.scale.content, 10.0, rtol=1e-5)
    np.testing.assert_allclose(hypermodel.index.scale.content, 6**-0.5, rtol=1e-5)
    assert [layer.weight.shape for layer in hypermodel.prior.enn.content.layers] == [(10, 2, 3), (2, 10, 3)]
    # A larger ensemble begins with the smaller.
    key = getkey()
    small, large = (init(EnsembleAgent(num_particles=count), key) for count in (1, 2))
    np.testing.assert_array_equal(small.particles.layers[0].weight[0], large.particles.layers[0].weight[0])


def test_registry_describes_every_agent():
    assert list(AGENTS) == ["mlp", "ensemble", "dropout", "bbb", "hypermodel", "ensemble+", "sgmcmc", "epinet"]
    assert all(agent.description and agent.hyperparameters for agent in AGENTS.values())
    with pytest.raises(ValueError, match="`name` must be a known name, near it are ensemble.*; got 'ensembel'"):
        find_agent("ensembel")
    with pytest.raises(ValueError, match="there are mlp, ensemble, .*epinet; got 'knn'"):
        find_agent("knn")
    assert find_agent("epinet") == EpinetAgent()


def make_stack(settings, getkey):
    """Return problems padded beyond the longest of them, a key for each, and the problems alone."""
    problems = [Problem.generate(setting, key=getkey()) for setting in settings]
    return stack_problems(problems, pad_to=9), jr.split(getkey(), len(problems)), problems


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_trains_and_predicts(name, getkey):
    problems, keys, _ = make_stack((SMALL, NOISY), getkey)
    enns = train_agent(tiny(name), problems, keys=keys)
    num_samples = 5 if enns.index.support() is None else None
    estimates = evaluate(enns, problems, taus=(1, 2), num_batches=4, num_samples=num_samples, keys=keys)
    for estimate in estimates.values():
        assert estimate.values.shape == (2, 4)
        np.testing.assert_array_equal(count_nonfinite(estimate), 0)
    if name == "sgmcmc":
        assert enns.index.num_particles == 3


@pytest.mark.parametrize("name", ["epinet", "ensemble"])
def test_stack_of_problems_is_each_of_them_alone(name, getkey):
    # Neither padding nor company may change anything.
    agent = tiny(name)
    stack, keys, problems = make_stack((SMALL, OTHER), getkey)
    stacked = train_agent(agent, stack, keys=keys)
    for number, problem in enumerate(problems):
        alone = agent(problem, jr.clone(keys)[number])
        for found, expected in zip(jax.tree.leaves(stacked), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(found)[number], expected, atol=1e-5)
    # And something was trained: the last one is not as it began.
    (init_key,) = named_keys(keys[1], "init")
    initial = eqx.filter_jit(agent.init)(problems[1].knowledge, key=init_key)
    changes = jax.tree.map(lambda after, before: np.max(np.abs(np.asarray(after) - np.asarray(before))), alone, initial)
    trained = jax.tree.leaves(eqx.filter(changes, trainable_mask(alone)))
    assert all(1e-3 < change < 0.1 for change in trained)


def test_agent_that_diverges_leaves_the_others_alone(getkey):
    x, y = jr.normal(getkey(), (4, 2)), jnp.array([0, 1, 0, 1])
    tests = (x[:, None], y[:, None], jnp.full(4, -0.7))
    problems = [Problem.from_arrays(scale * x, y, *tests, temperature=0.1) for scale in (1.0, 1e30)]
    keys = jr.split(getkey(), 2)
    enns = train_agent(tiny("mlp"), stack_problems(problems), keys=keys)
    assert all(bool(jnp.all(jnp.isfinite(leaf[0]))) for leaf in jax.tree.leaves(enns))
    estimates = evaluate(enns, stack_problems(problems), taus=(1,), keys=keys)
    np.testing.assert_array_equal(count_nonfinite(estimates[1]), [0, 4])
    assert bool(jnp.isfinite(estimates[1].mean[0])) and bool(jnp.isnan(estimates[1].mean[1]))


def test_any_function_is_an_agent(getkey):
    seen = []

    def agent(problem, key):
        seen.append(problem.data.x.shape)
        return Deterministic(MLP(problem.knowledge.input_dim, problem.knowledge.num_classes, (3,), key=key))

    problems = stack_problems([Problem.generate(setting, key=getkey()) for setting in (SMALL, OTHER)])
    keys = jr.split(getkey(), 2)
    enns = train_agent(agent, problems, keys=keys)
    assert seen == [(4, 2), (6, 2)]
    expected = MLP(2, 2, (3,), key=jr.clone(keys)[1])
    np.testing.assert_array_equal(enns.network.layers[0].weight[1], expected.layers[0].weight)
    with pytest.raises(TypeError, match="`agent` must return an ENN .*; got int"):
        train_agent(lambda problem, key: 3, problems, keys=keys)
    with pytest.raises(ValueError, match="`keys` must hold one key per problem, 2; got shape \\(1,\\)"):
        train_agent(agent, problems, keys=keys[:1])


def test_groups_share_programs(getkey):
    epinet = training_groups(AGENTS["epinet"], settings())
    assert len(epinet) == 12 and all(len(group) == 15 for group in epinet)
    assert sorted(setting.number for group in epinet for setting in group) == list(range(1, 181))
    assert {setting.num_train for setting in epinet[0] + epinet[1] + epinet[2]} == {2, 20, 200}
    assert len({AGENTS["mlp"].group(s.input_dim, s.num_train) for s in settings()}) == 4
    assert len({AGENTS["sgmcmc"].group(s.input_dim, s.num_train) for s in settings()}) == 12
    assert [len(group) for group in training_groups(MLPAgent(), settings()[:10], max_members=4)] == [4, 4, 2]
    mixed = stack_problems([Problem.generate(setting, key=getkey()) for setting in (SMALL, OTHER)])
    with pytest.raises(ValueError, match="`problems` must be of one group of SGMCMCAgent.*with \\[4, 6\\] training"):
        train_agent(tiny("sgmcmc"), mixed, keys=jr.split(getkey(), 2))
