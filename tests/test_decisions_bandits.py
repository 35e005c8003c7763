"""Bandits and the agents in them: environments, the compiled loop, and the same code for every ENN."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from epinet_eqx import named_keys
from epinet_eqx.bandits import (
    AbstractBandit,
    BernoulliReward,
    ClassificationBandit,
    ENNAgent,
    EpsilonGreedy,
    GaussianReward,
    Greedy,
    LinearBandit,
    NeuralBandit,
    ReplayBuffer,
    Round,
    ThompsonSampling,
    run_bandit,
    run_bandits,
)
from epinet_eqx.bayes import Deterministic, Ensemble, dropout_mlp
from epinet_eqx.combinators import Prior, WithPrior
from epinet_eqx.epinet import Epinet, MLPEpinet, mlp_prior
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import BernoulliBootstrap, CrossEntropy, SquaredLoss
from epinet_eqx.networks import MLP
from epinet_eqx.testbed import GenerativeModel

pytestmark = pytest.mark.once

IN_DIM = 3


def make_epinet(key):
    base_key, epinet_key, prior_key = named_keys(key, "base", "epinet", "prior")
    base = MLP(IN_DIM, 2, (6,), key=base_key)
    learnable = MLPEpinet(base.feature_dim, 3, 2, hidden=(4,), key=epinet_key)
    return Epinet(base, learnable, (mlp_prior(IN_DIM, 3, 2, key=prior_key),), GaussianIndex(3))


def make_particle_with_prior(key):
    network_key, prior_key = named_keys(key, "network", "prior")
    network, prior = MLP(IN_DIM, 2, (6,), key=network_key), MLP(IN_DIM, 2, (6,), key=prior_key)
    return WithPrior(Deterministic(network), Prior(Deterministic(prior)))


BUILDERS = {
    "epinet": make_epinet,
    "ensemble": lambda key: Ensemble(eqx.filter_vmap(lambda k: MLP(IN_DIM, 2, (6,), key=k))(jr.split(key, 3))),
    "ensemble+": lambda key: Ensemble(eqx.filter_vmap(make_particle_with_prior)(jr.split(key, 3))),
    "dropout": lambda key: dropout_mlp(IN_DIM, 2, (6,), key=key),
    "mlp": lambda key: Deterministic(MLP(IN_DIM, 2, (6,), key=key)),
}


class Coins(AbstractBandit):
    """Actions with a fixed chance of a prize."""

    chances: Array
    prize: Array = eqx.field(converter=jnp.asarray)

    def round(self, *, key):
        return Round(jnp.eye(IN_DIM), self.chances * self.prize)

    def reward(self, expected, *, key):
        return jnp.where(jr.uniform(key) < expected / self.prize, self.prize, 0.0)


COINS = Coins(jnp.array([0.2, 0.5, 0.9]), 1.0)


def make_agent(name):
    """Return an agent with one of the ENNs."""

    def make_loss(key):
        return CrossEntropy(l2=0.1, bootstrap=BernoulliBootstrap(0.5, key=key) if name == "ensemble" else None)

    return ENNAgent(
        BUILDERS[name],
        make_loss,
        BernoulliReward(),
        ThompsonSampling(),
        num_updates=2 if name == "mlp" else 1,
        batch_size=4,
        num_index_samples=3 if name in ("epinet", "dropout") else None,
        buffer_size=5,
    )


def is_shape(leaf):
    return isinstance(leaf, jax.ShapeDtypeStruct)


def check_run(run):
    """Check what holds for two runs of eight steps."""
    assert run.regret.shape == run.actions.shape == run.rewards.shape == (2, 8)
    np.testing.assert_allclose(run.regret, np.cumsum(run.regrets, axis=1), rtol=1e-5)
    assert set(np.unique(run.rewards)) <= {0.0, 1.0}
    assert np.all(run.state.ok)
    # The last five observations, by their numbers.
    assert sorted(run.state.buffer.data.i[0].tolist()) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", BUILDERS)
def test_every_enn_acts_and_learns_by_the_same_code(name, getkey):
    agent, key = make_agent(name), getkey()

    def step(state):
        probs = agent.policy(state, jnp.eye(IN_DIM), key=key)
        return probs, agent.observe(state, jnp.asarray(0), jnp.zeros(IN_DIM), jnp.asarray(1.0), key=key)

    before = eqx.filter_eval_shape(lambda: agent.init(jnp.eye(IN_DIM), 8, key=key))
    probs, after = eqx.filter_eval_shape(step, before)
    assert probs.shape == (IN_DIM,)
    # What a compiled loop needs: a state of the same arrays after each step.
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(eqx.filter(s, is_shape))] for s in (before, after)]
    assert shapes[0] == shapes[1]


def test_an_epinet_runs_in_one_environment(getkey):
    run = run_bandits(make_agent("epinet"), COINS, num_steps=8, keys=jr.split(getkey(), 2))
    check_run(run)
    np.testing.assert_allclose(run.regrets, 0.9 - np.asarray(COINS.chances)[run.actions], rtol=1e-6)


def test_an_ensemble_runs_in_environments_of_its_own(getkey):
    def environment(key):
        return Coins(jnp.roll(jnp.eye(IN_DIM)[0], jr.randint(key, (), 0, 3)), 1.0)

    run = run_bandits(make_agent("ensemble"), environment, num_steps=8, keys=jr.split(getkey(), 2))
    check_run(run)
    np.testing.assert_allclose(run.regrets, 1 - run.rewards)


def test_a_run_is_the_same_in_a_stack_and_inside_of_another_program(getkey):
    agent, keys = make_agent("mlp"), jr.split(getkey(), 2)
    together = run_bandits(agent, COINS, num_steps=8, keys=jr.clone(keys))
    check_run(together)

    @eqx.filter_jit
    def alone(key):
        return run_bandit(agent, COINS, num_steps=8, key=named_keys(key, "run")[0])

    for number in range(2):
        run = alone(jr.clone(keys)[number])
        assert run.actions.tolist() == together.actions[number].tolist()
        weights = [found.state.enn.network.layers[0].weight for found in (run, together)]
        np.testing.assert_allclose(weights[0], weights[1][number], rtol=1e-4, atol=1e-6)


def test_who_knows_the_truth_has_no_regret_and_who_chooses_uniformly_has_the_mean(getkey):
    bandit = LinearBandit.generate(4, 6, key=getkey())
    oracle = Deterministic(lambda x: x @ bandit.theta[:, None])

    def run(epsilon):
        rule = EpsilonGreedy(epsilon, 1)
        agent = ENNAgent(make_oracle, SquaredLoss(), GaussianReward(), rule, optimizer=optax.sgd(0.0), num_updates=0)
        return run_bandit(agent, bandit, num_steps=500, key=getkey())

    def make_oracle(key):
        return oracle

    expected = np.asarray(bandit.inputs @ bandit.theta)
    knows, guesses = run(0.0), run(1.0)
    assert float(knows.regret[-1]) == 0
    np.testing.assert_allclose(np.mean(knows.rewards), np.max(expected), atol=4 * 0.1 / 500**0.5)
    deviation = 4 * np.std(expected) / 500**0.5
    np.testing.assert_allclose(np.mean(guesses.regrets), np.max(expected) - np.mean(expected), atol=deviation)


def test_a_penalty_is_divided_by_a_power_of_the_number_of_observations(getkey):
    key = getkey()

    def parameters(l2, prior_power):
        loss = CrossEntropy(l2=l2)
        options = {"num_index_samples": None, "batch_size": 2, "prior_power": prior_power}
        agent = ENNAgent(BUILDERS["mlp"], loss, BernoulliReward(), Greedy(1), optimizer=optax.sgd(0.1), **options)
        state = agent.init(jnp.eye(IN_DIM), 4, key=key)
        after = agent.observe(state, jnp.asarray(3), jnp.ones(IN_DIM), jnp.asarray(1.0), key=key)
        return jax.flatten_util.ravel_pytree(eqx.filter(after.enn, eqx.is_inexact_array))[0]

    # Four observations: the root of four is two.
    np.testing.assert_allclose(parameters(0.1, 0.5), parameters(0.2, 1.0), rtol=1e-5)
    assert not np.allclose(parameters(0.1, 0.5), parameters(0.1, 1.0), rtol=1e-3)


def test_an_agent_learns_a_linear_bandit_or_says_that_it_diverged(getkey):
    agent = ENNAgent(
        lambda key: Deterministic(MLP(3, 1, (), key=key)),
        SquaredLoss(l2=0.01),
        GaussianReward(),
        EpsilonGreedy(0.3, 1),
        optimizer=optax.adam(0.1),
        batch_size=8,
        num_index_samples=1,
    )
    theta = jnp.array([0.0, 0.3, 1.0])
    run = run_bandit(agent, LinearBandit(jnp.eye(3), theta, 0.05), num_steps=150, key=getkey())
    layer = run.state.enn.network.layers[0]
    np.testing.assert_allclose(layer.weight[0] + layer.bias, theta, atol=0.15)
    # Three in ten steps are uniform; the rest is right.
    assert np.mean(run.regrets[75:]) < 0.3 * (1.7 / 3) + 0.15
    # The square of the third reward is beyond single precision.
    run = run_bandit(agent, LinearBandit(jnp.eye(3), jnp.array([0.0, 0.3, 1e30]), 0.05), num_steps=150, key=getkey())
    failed = np.isnan(run.regrets)
    first = int(np.argmax(run.actions == 2)) + 1
    assert not np.any(failed[:first]) and np.all(failed[first:])
    assert not bool(run.state.ok) and np.all(np.isfinite(run.state.enn.network.layers[0].weight))


def test_the_reward_of_the_testbed_is_a_label_of_its_model(getkey):
    bandit = eqx.filter_jit(lambda key: NeuralBandit.generate(IN_DIM, 5, 0.1, key=key))(getkey())
    inputs, expected = bandit.round(key=getkey())
    assert inputs.shape == (5, IN_DIM)
    np.testing.assert_allclose(expected, jax.nn.softmax(jax.vmap(bandit.model)(inputs))[:, 1])
    rewards = jax.jit(jax.vmap(lambda key: bandit.reward(jnp.asarray(0.3), key=key)))(jr.split(getkey(), 1000))
    assert set(rewards.tolist()) == {0.0, 1.0}
    assert abs(float(jnp.mean(rewards)) - 0.3) < 4 * (0.21 / 1000) ** 0.5


@pytest.mark.parametrize("encoding", ["blocks", "appended"])
def test_only_the_right_class_pays(encoding, getkey):
    x, y = jr.normal(getkey(), (4, 2)), jnp.array([0, 2, 1, 2])
    bandit = ClassificationBandit(x, y, encoding=encoding)
    inputs, expected = bandit.round(key=getkey())
    assert inputs.shape == (3, bandit.input_dim) == (3, 6 if encoding == "blocks" else 5)
    assert sorted(expected.tolist()) == [0.0, 0.0, 1.0]
    row = inputs[0, :2]
    number = int(jnp.argmin(jnp.sum(jnp.square(x - row[None, :]), axis=1)))
    np.testing.assert_allclose(row, x[number])
    assert int(jnp.argmax(expected)) == int(y[number])
    guess = jnp.eye(3)[1]
    shown = jnp.outer(guess, row).reshape(-1) if encoding == "blocks" else jnp.concatenate([row, guess])
    np.testing.assert_allclose(inputs[1], shown)
    assert float(bandit.reward(expected[1], key=getkey())) == float(expected[1])


def test_the_oldest_observation_is_forgotten(getkey):
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    buffer = ReplayBuffer.empty({"a": jax.ShapeDtypeStruct((2,), jnp.float32)}, scalar, 3)

    @eqx.filter_jit
    def add(buffer, number, key):
        value = number.astype(float)
        buffer = buffer.add(number, {"a": jnp.broadcast_to(value, (2,))}, 10 * value)
        return buffer, buffer.sample(number + 1, 30, key=key)

    for number in range(5):
        buffer, drawn = add(buffer, jnp.asarray(number), getkey())
        assert set(drawn.i.tolist()) == set(range(max(0, number - 2), number + 1))
        np.testing.assert_allclose(drawn.x["a"][:, 0], drawn.i.astype(float))
        np.testing.assert_allclose(drawn.y, 10 * drawn.i.astype(float))


def test_rewards_that_the_model_does_not_allow_are_named(getkey):
    agent = ENNAgent(BUILDERS["mlp"], CrossEntropy(), BernoulliReward(), Greedy(1), num_updates=0)
    message = "`environment` must give rewards of 0 and 1 for a `BernoulliReward`"
    with pytest.raises(ValueError, match=f"{message}; got values from .* to 10"):
        run_bandit(agent, Coins(jnp.ones(IN_DIM), 10.0), num_steps=2, key=getkey())
    with pytest.raises(RuntimeError, match=message):
        jax.block_until_ready(jax.jit(BernoulliReward().check_rewards)(jnp.array([0.0, 0.5])))
    with pytest.raises(ValueError, match="`rewards of the environment` must be finite"):
        GaussianReward().check_rewards(jnp.array([0.0, jnp.inf]))


def test_bad_bandits_and_agents_are_named(getkey, as_user):
    x, y = jnp.zeros((3, 2)), jnp.array([0, 2, 2])
    with pytest.raises(ValueError, match=r"`y` must hold labels of all 3 classes; got none of \[1\]"):
        ClassificationBandit(x, y)
    with pytest.raises(ValueError, match=r"`y` must hold labels of all 4 classes; got none of \[1, 3\]"):
        ClassificationBandit(x, y, num_classes=4)
    with pytest.raises(ValueError, match="`y` must hold classes from 0 to 1; got values from 0 to 2"):
        ClassificationBandit(x, y, num_classes=2)
    with pytest.raises(ValueError, match="`y` must hold one integer label per example"):
        ClassificationBandit(x, y[:2])
    with pytest.raises(ValueError, match="`x` must have shape .examples, features."):
        ClassificationBandit(x[0], y)
    with pytest.raises(ValueError, match="`encoding` must be"):
        ClassificationBandit(x, y, encoding="outer")
    with pytest.raises(ValueError, match="`theta` must have one entry per feature, 2"):
        LinearBandit(x, jnp.zeros(3))
    with pytest.raises(ValueError, match="`inputs` must have shape .actions, features."):
        NeuralBandit(x[0], GenerativeModel(2, 2, 0.1, key=getkey()))
    with pytest.raises(ValueError, match="`model` must have two classes"):
        NeuralBandit(x, GenerativeModel(2, 3, 0.1, key=getkey()))
    with pytest.raises(ValueError, match="`num_updates` must be an integer of at least 0; got -1"):
        ENNAgent(make_epinet, CrossEntropy(), BernoulliReward(), Greedy(), num_updates=-1)
    endless = ENNAgent(make_epinet, CrossEntropy(), BernoulliReward(), Greedy(), num_index_samples=None)
    with pytest.raises(ValueError, match="`num_index_samples` must be given for an index without a finite support"):
        run_bandit(endless, COINS, num_steps=1, key=getkey())
    with pytest.raises(ValueError, match="`output` must have one entry, the mean of the reward; got 2"):
        GaussianReward().expected(jnp.zeros(2))
    with pytest.raises(ValueError, match="`output` must have two classes for rewards of 0 and 1; got 3"):
        BernoulliReward().expected(jnp.zeros(3))
    with pytest.raises(ValueError, match="`num_steps` must be a positive integer; got 0"):
        run_bandit(endless, COINS, num_steps=0, key=getkey())
    with pytest.raises(ValueError, match="`keys` must hold one key per run"):
        run_bandits(endless, COINS, num_steps=1, keys=getkey())
