"""Decisions, bandits and acquisition: every bad value of every argument is refused, as in `test_bad_arguments.py`."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from bad_values import ENNS, FUNCTIONS, KEYS, MASKS, NUMBERS, POSITIVE, SHARES, SIZES, answers, arrays, labels

import epinet_eqx as epi
from epinet_eqx import acquisition, bandits, decisions
from epinet_eqx.losses import Batch, CrossEntropy, SquaredLoss
from epinet_eqx.networks import MLP

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("as_user")]

KEY = jr.key(0)
BASE = MLP(3, 4, (5,), key=KEY)
ENN = epi.attach(BASE, out_size=4, index_dim=3, priors=(), key=jr.fold_in(KEY, 1))
ONE = epi.attach(MLP(3, 1, (5,), key=jr.fold_in(KEY, 2)), out_size=1, index_dim=3, priors=(), key=jr.fold_in(KEY, 3))
DRAWS = epi.Draws.sample(ENN.index, 5, key=jr.fold_in(KEY, 4))
X = np.asarray(jr.normal(jr.fold_in(KEY, 5), (8, 3)))
Y = np.arange(8) % 4
REWARDS = np.asarray(jr.normal(jr.fold_in(KEY, 6), (6, 4)))
AGENT = bandits.ENNAgent(lambda key: ONE, SquaredLoss(), bandits.GaussianReward(), bandits.Greedy(2))
LINEAR = bandits.LinearBandit(jnp.asarray(X), jnp.asarray(X[0]))
LEARNER = bandits.OnlineLearner.start(AGENT, X[:2], capacity=4, key=jr.fold_in(KEY, 8))
POOL = Batch.of(jnp.asarray(X), jnp.asarray(Y))

# name: (function, good arguments, bad values of some of them).
CALLS = {
    "batch_bald": (
        acquisition.batch_bald,
        {"enn": ENN, "x": X, "size": 2, "draws": DRAWS, "key": jr.fold_in(KEY, 14)},
        {
            "enn": ENNS,
            "x": arrays(X),
            "size": (*SIZES, 9),
            "draws": (None, 5),
            "available": MASKS(8),
            "max_combinations": SIZES,
            "key": KEYS,
        },
    ),
    "joint_loss_scores": (
        acquisition.joint_loss_scores,
        {"enn": ENN, "x": X, "draws": DRAWS, "y": Y},
        {"enn": ENNS, "x": arrays(X), "y": labels(Y)[:-1], "tau": (*SIZES, 2**40)},
    ),
    "acquire": (
        acquisition.acquire,
        {"scores": X[:, 0], "batch_size": 2},
        {"scores": arrays(X[:, 0]), "batch_size": (*SIZES, 9), "available": MASKS(8)},
    ),
    "balanced_start": (
        acquisition.balanced_start,
        {"y": Y, "num_classes": 4, "per_class": 1, "key": jr.fold_in(KEY, 15)},
        {"y": [*labels(Y)[:7], *labels(Y)[8:]], "num_classes": (*SIZES, 3), "per_class": (*SIZES, 3), "key": KEYS},
    ),
    "PoolLearner": (
        acquisition.PoolLearner,
        {"make_enn": lambda key: ENN, "loss": CrossEntropy()},
        {
            "make_enn": FUNCTIONS,
            "num_steps": SIZES,
            "batch_size": SIZES,
            "num_index_samples": SIZES,
            "prior_power": NUMBERS,
        },
    ),
    "run_active_learning": (
        acquisition.run_active_learning,
        {
            "learner": acquisition.PoolLearner(lambda key: ENN, CrossEntropy(), num_steps=1),
            "pool": POOL,
            "acquisition": acquisition.by_score(acquisition.bald_scores, num_samples=3),
            "start": np.array([0, 1]),
            "num_rounds": 2,
            "size": 1,
            "evaluate": lambda enn: jnp.zeros(()),
            "key": jr.fold_in(KEY, 16),
        },
        {
            "learner": (None, ENN, "a"),
            "pool": (None, "a", (X, Y)),
            "acquisition": FUNCTIONS,
            "start": (
                np.array([-1, 0]),
                np.array([0, 8]),
                np.array([1, 1]),
                np.array([0.0, 1.0]),
                np.array([0, 2**32 + 1]),
                np.arange(8) < 2,
                None,
                "a",
            ),
            "num_rounds": (*SIZES[:4], 99),
            "size": (*SIZES, 9),
            "evaluate": FUNCTIONS,
            "key": KEYS,
        },
    ),
    "LinearBandit": (
        bandits.LinearBandit,
        {"inputs": X, "theta": X[0]},
        {"inputs": arrays(X), "theta": arrays(X[0]), "noise_scale": POSITIVE},
    ),
    "NeuralBandit": (
        bandits.NeuralBandit,
        {"inputs": X, "model": lambda x: jnp.zeros(2)},
        {"inputs": arrays(X), "model": FUNCTIONS},
    ),
    "NeuralBandit.generate": (
        bandits.NeuralBandit.generate,
        {"input_dim": 3, "num_actions": 2, "key": jr.fold_in(KEY, 17)},
        {"input_dim": SIZES, "num_actions": SIZES, "temperature": (*POSITIVE, 0.0), "key": KEYS},
    ),
    "Greedy": (
        lambda rewards, key: bandits.Greedy(2)(rewards, key=key),
        {"rewards": REWARDS, "key": jr.fold_in(KEY, 18)},
        {"rewards": arrays(REWARDS), "key": KEYS},
    ),
    "ENNAgent": (
        bandits.ENNAgent,
        {
            "make_enn": lambda key: ONE,
            "loss": SquaredLoss(),
            "reward_model": bandits.GaussianReward(),
            "rule": bandits.Greedy(2),
        },
        {
            "make_enn": FUNCTIONS,
            "reward_model": FUNCTIONS,
            "rule": FUNCTIONS,
            "num_updates": SIZES[1:],
            "batch_size": SIZES,
            "num_index_samples": (*SIZES[:4], "a"),
        },
    ),
    "OnlineLearner.start": (
        bandits.OnlineLearner.start,
        {"agent": AGENT, "candidates": X[:2], "capacity": 4, "key": jr.fold_in(KEY, 19)},
        {"agent": (None, ENN, "a"), "candidates": (None, "a", 3), "capacity": SIZES, "key": KEYS},
    ),
    "OnlineLearner.act": (
        LEARNER.act,
        {"candidates": X[:2], "key": jr.fold_in(KEY, 20)},
        {"candidates": arrays(X[:2]), "key": KEYS},
    ),
    "OnlineLearner.observe": (
        LEARNER.observe,
        {"x": X[0], "reward": 1.0},
        {"x": arrays(X[0]), "reward": POSITIVE[:-2]},
    ),
    "run_bandit": (
        bandits.run_bandit,
        {"agent": AGENT, "environment": LINEAR, "num_steps": 1, "key": jr.fold_in(KEY, 21)},
        {"agent": (None, ENN, "a"), "environment": (None, ENN, "a"), "num_steps": SIZES, "key": KEYS},
    ),
    "run_bandits": (
        bandits.run_bandits,
        {"agent": AGENT, "environment": LINEAR, "num_steps": 1, "keys": jr.split(jr.fold_in(KEY, 22), 2)},
        {
            "agent": (None, ENN, "a"),
            "environment": FUNCTIONS,
            "num_steps": SIZES,
            "keys": (None, 0, "a", KEY, np.arange(2)),
        },
    ),
    "choose_set": (
        decisions.choose_set,
        {"reward_fn": decisions.largest_outcome, "outcomes": REWARDS, "size": 2},
        {
            "reward_fn": FUNCTIONS,
            "outcomes": arrays(REWARDS),
            "size": (*SIZES, 5),
            "available": MASKS(4),
            "summary": FUNCTIONS,
        },
    ),
    "set_reward": (
        decisions.set_reward,
        {"reward_fn": decisions.largest_outcome, "outcomes": REWARDS, "chosen": np.ones(4, bool)},
        {"reward_fn": FUNCTIONS, "outcomes": arrays(REWARDS), "chosen": MASKS(4), "summary": FUNCTIONS},
    ),
    "Improvement": (decisions.Improvement, {"best": 1.0}, {"best": (*NUMBERS, None)}),
    "SampledFunction": (
        decisions.SampledFunction,
        {"enn": ONE, "z": X[0]},
        {"enn": ENNS, "z": arrays(X[0]), "value": FUNCTIONS},
    ),
    "ImprovementFunction": (
        decisions.ImprovementFunction,
        {"enn": ONE, "draws": epi.Draws.sample(ONE.index, 2, key=jr.fold_in(KEY, 23)), "best": 0.0},
        {"enn": ENNS, "draws": (None, 5), "best": (*NUMBERS, None), "value": FUNCTIONS},
    ),
    "maximize": (
        decisions.maximize,
        {"function": jnp.sum, "bounds": np.array([[0.0, 0.0], [1.0, 1.0]]), "key": jr.fold_in(KEY, 24)},
        {
            "function": FUNCTIONS,
            "bounds": (*arrays(np.ones((2, 2))), np.array([[1.0, 0.0], [0.0, 1.0]])),
            "num_candidates": SIZES,
            "num_starts": SIZES,
            "num_steps": SIZES,
            "learning_rate": POSITIVE,
            "key": KEYS,
        },
    ),
    "best_actions": (decisions.best_actions, {"expected": X[:, 0]}, {"expected": arrays(X[:, 0])}),
    "expected_improvement": (
        decisions.expected_improvement,
        {"values": REWARDS, "best": 0.0},
        {"values": arrays(REWARDS), "best": (*NUMBERS, None)},
    ),
    "quantile_values": (
        decisions.quantile_values,
        {"values": REWARDS, "q": 0.5},
        {"values": arrays(REWARDS), "q": SHARES},
    ),
    "preference_probs": (decisions.preference_probs, {"rewards": REWARDS}, {"rewards": arrays(REWARDS)}),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_bad_value_is_refused_by_a_sentence(call):
    wrong = answers(*CALLS[call])
    assert not wrong, "\n".join(wrong)
