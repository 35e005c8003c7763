"""Learning online: the learner and the bandit loop agree, it resumes to the bit, and nothing compiles as data grow."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from epinet_eqx import load, named_keys, save, trainable_mask
from epinet_eqx.bandits import (
    AbstractBandit,
    BernoulliReward,
    ENNAgent,
    Greedy,
    OnlineLearner,
    Round,
    ThompsonSampling,
    run_bandit,
)
from epinet_eqx.bayes import Deterministic
from epinet_eqx.epinet import Epinet, MLPEpinet
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import L2, AnchoredL2, CrossEntropy, FunctionLoss, GaussianKL, anchored
from epinet_eqx.networks import MLP

pytestmark = pytest.mark.once

IN_DIM = 2


class Counted(BernoulliReward):
    """Rewards of 0 and 1 whose model counts how often it is traced."""

    traces: list[str] = eqx.field(static=True)

    def expected(self, output):
        self.traces.append("act")
        return BernoulliReward().expected(output)

    def target(self, reward):
        self.traces.append("observe")
        return BernoulliReward().target(reward)

    def check_rewards(self, rewards):
        return BernoulliReward().check_rewards(rewards)


class Coins(AbstractBandit):
    """Three actions with a fixed chance of a prize."""

    inputs: Array

    def round(self, *, key):
        return Round(self.inputs, jnp.array([0.2, 0.5, 0.9]))

    def reward(self, expected, *, key):
        return jr.bernoulli(key, expected).astype(float)


def make_enn(key):
    base_key, epinet_key = named_keys(key, "base", "epinet")
    base = MLP(IN_DIM, 2, (4,), key=base_key)
    return Epinet(base, MLPEpinet(base.feature_dim, 2, 2, hidden=(3,), key=epinet_key), (), GaussianIndex(2))


def make_network(key):
    return Deterministic(MLP(IN_DIM, 2, (), key=key))


def make_agent(model, make=make_enn, **options):
    known = {"batch_size": 4, "num_index_samples": 2, "optimizer": optax.adam(0.05)}
    return ENNAgent(make, CrossEntropy(l2=0.1), model, ThompsonSampling(4), **(known | options))


def flat(tree):
    return jax.flatten_util.ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def test_the_loop_is_the_learner_step_by_step_and_nothing_compiles_again(getkey, tmp_path):
    traces: list[str] = []
    environment = Coins(jr.normal(getkey(), (3, IN_DIM)))
    agent, key = make_agent(Counted(traces=traces), buffer_size=5), getkey()
    run = run_bandit(agent, environment, num_steps=8, key=key)
    learner_key, loop_key = named_keys(key, "learner", "steps")
    learner = OnlineLearner.start(agent, environment.inputs, capacity=8, key=learner_key)
    traces.clear()
    for step in range(8):
        (choice_key,) = named_keys(jr.fold_in(loop_key, step), "choice")
        decision = learner.act(environment.inputs, key=choice_key)
        assert int(decision.action) == int(run.actions[step])
        np.testing.assert_allclose(decision.propensity, run.propensities[step], rtol=1e-6)
        assert decision.propensity == decision.probs[decision.action] > 0
        np.testing.assert_allclose(jnp.sum(decision.probs), 1.0, rtol=1e-6)
        learner = learner.observe(environment.inputs[decision.action], run.rewards[step])
        if step == 3:
            save(tmp_path / "learner.safetensors", learner)
    assert traces.count("act") == 1 and traces.count("observe") == 1
    assert int(learner.count) == 8
    np.testing.assert_allclose(flat(learner.state.enn), flat(run.state.enn), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(learner.state.buffer.data.i, run.state.buffer.data.i)

    # The same from the middle on, in what may be another process.
    resumed = load(
        tmp_path / "learner.safetensors", OnlineLearner.start(agent, environment.inputs, capacity=8, key=key)
    )
    for step in range(4, 8):
        resumed = resumed.observe(environment.inputs[run.actions[step]], run.rewards[step])
    assert traces.count("observe") == 1
    assert jax.tree.structure(resumed) == jax.tree.structure(learner)
    for one, other in zip(jax.tree.leaves(resumed), jax.tree.leaves(learner), strict=True):
        if eqx.is_array(one):
            pair = [
                jr.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf for leaf in (one, other)
            ]
            np.testing.assert_array_equal(pair[0], pair[1])


def test_an_anchor_holds_the_initial_weights_until_data_come(getkey):
    enn = make_network(getkey())
    params = eqx.filter(enn, trainable_mask(enn))
    loss = anchored(CrossEntropy(l2=0.5), enn)
    assert isinstance(loss.penalty, AnchoredL2)
    assert float(loss.penalty(enn, params, jnp.zeros(()))) == 0
    moved = jax.tree.map(lambda leaf: leaf + 2.0, params)
    count = flat(params).size
    np.testing.assert_allclose(loss.penalty(enn, moved, jnp.zeros(())), 0.5 * 4.0 * count, rtol=1e-5)
    with pytest.raises(ValueError, match="`loss` must have an `L2` penalty to be anchored; got GaussianKL"):
        anchored(CrossEntropy(penalty=GaussianKL(10)), enn)


def test_the_anchor_is_divided_by_the_number_of_observations(getkey):
    key = getkey()
    # No data term: what is left of one step of gradient descent is the penalty.
    loss = FunctionLoss(lambda output, y: jnp.zeros(()), penalty=L2(0.1))
    options = {"optimizer": optax.sgd(1.0), "num_index_samples": 1, "batch_size": 2, "anchored": True}
    agent = ENNAgent(make_network, loss, BernoulliReward(), Greedy(1), **options)
    state = agent.init(jnp.zeros((3, IN_DIM)), 4, key=key)
    away = jax.tree.map(lambda leaf: leaf + 1.0 if eqx.is_inexact_array(leaf) else leaf, state.enn)
    state = eqx.tree_at(lambda state: state.enn, state, away)
    for count in (1, 4):
        after = agent.observe(state, jnp.asarray(count - 1), jnp.zeros(IN_DIM), jnp.asarray(1.0), key=key)
        np.testing.assert_allclose(flat(away) - flat(after.enn), 0.2 / count, rtol=1e-4)


def test_what_a_learner_cannot_use_is_named(getkey):
    agent = make_agent(BernoulliReward(), make_network, num_index_samples=1)
    candidates = jnp.ones((3, IN_DIM))
    learner = OnlineLearner.start(agent, candidates, capacity=4, key=getkey())
    with pytest.raises(ValueError, match=r"`x` must have the shape of a candidate, \(2,\); got \(\)"):
        learner.observe(jnp.ones(()), 1.0)
    with pytest.raises(ValueError, match="`x` must be finite; got 1 non-finite"):
        learner.observe(jnp.array([0.0, jnp.nan]), 1.0)
    with pytest.raises(ValueError, match="`environment` must give rewards of 0 and 1"):
        learner.observe(candidates[0], 0.5)
    with pytest.raises(ValueError, match="`candidates` must be finite"):
        learner.act(candidates.at[0].set(jnp.inf), key=getkey())
    with pytest.raises(ValueError, match="`candidates` must not be empty"):
        learner.act(candidates[:0], key=getkey())
    with pytest.raises(ValueError, match="`capacity` must be a positive integer; got 0"):
        OnlineLearner.start(agent, candidates, capacity=0, key=getkey())
    failed = eqx.tree_at(lambda learner: learner.state.ok, learner, jnp.array(False))
    with pytest.raises(FloatingPointError, match="`learner` must predict finite rewards"):
        failed.act(candidates, key=getkey())
