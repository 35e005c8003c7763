"""An agent that learns a network and acts through a head: it learns the same, and acts by joint predictions."""

import functools as ft

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from epinet_eqx.bandits import BernoulliReward, ENNAgent, NeuralBandit, ThompsonSampling, run_bandits
from epinet_eqx.bayes import as_enn
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.pitman_yor import FourierField, OnMean

pytestmark = pytest.mark.once


def make_network(key):
    return as_enn(MLP(2, 2, (8,), key=key))


def agents(alpha, length_scale, key, num_samples=1):
    """Return the agent alone, and acting through a head."""
    rule = ThompsonSampling(num_samples)
    make = ft.partial(ENNAgent, make_network, CrossEntropy(l2=0.1), BernoulliReward(), rule, num_index_samples=None)
    field = FourierField(jr.normal(jr.fold_in(key, 0), (200, 2)), 50, length_scale=length_scale, key=key)
    return make(), make(view=OnMean(field, alpha=alpha))


def test_at_share_one_it_is_the_agent_itself(getkey):
    keys = jr.split(getkey(), 2)
    make = lambda key: NeuralBandit.generate(2, 6, key=key)  # noqa: E731
    own, through = (run_bandits(agent, make, num_steps=12, keys=jr.clone(keys)) for agent in agents(1.0, 0.3, getkey()))
    np.testing.assert_array_equal(own.regret, through.regret)


def test_actions_that_are_near_are_uncertain_together(getkey):
    own, through = agents(0.1, 1.0, getkey(), num_samples=4000)
    inputs = jnp.asarray([[0.0, 0.0], [0.0, 1e-3], [3.0, -3.0]])
    state = through.init(inputs, 10, key=getkey())
    rewards = own.sample_rewards(through.view(state.enn), inputs, key=getkey())
    # The mean of each action is the network's, whatever its share.
    expected = own.sample_rewards(state.enn, inputs, key=getkey())[0]
    np.testing.assert_allclose(jnp.mean(rewards, axis=0), expected, atol=0.035)
    correlation = np.corrcoef(rewards, rowvar=False)
    assert correlation[0, 1] > 0.98 and abs(correlation[0, 2]) < 0.3
    # Its rule looks at these samples: the far action is the best about as often as its probabilities say.
    shares = through.policy(state, inputs, key=getkey())
    assert jnp.sum(shares) == pytest.approx(1.0, abs=1e-5) and 0.1 < shares[2] < 0.9


def test_a_state_that_failed_says_so(getkey):
    _, through = agents(0.5, 0.3, getkey())
    state = through.init(jnp.zeros((3, 2)), 10, key=getkey())
    failed = eqx.tree_at(lambda state: state.ok, state, jnp.asarray(False))
    assert jnp.all(jnp.isnan(through.policy(failed, jnp.ones((3, 2)), key=getkey())))
    with pytest.raises(ValueError, match="must give rewards of 0 and 1"):
        through.check_rewards(jnp.asarray([2.0]))
