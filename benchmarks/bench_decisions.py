"""Decisions: a thousand steps of twenty bandits at once, and memory that does not grow with the pool."""

import sys
import time

import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi
from epinet_eqx import AbstractENN, Draws, named_keys
from epinet_eqx._draws import choose_batch_size
from epinet_eqx.bandits import (
    BernoulliReward,
    ENNAgent,
    NeuralBandit,
    ThompsonSampling,
    run_bandits,
)
from epinet_eqx.likelihoods import Categorical
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.predict._marginal import _uncertainty
from epinet_eqx.testbed import EpinetAgent, PriorKnowledge

from ._measure import Ratio, temporary_bytes

INPUT_DIM, NUM_ACTIONS, TEMPERATURE = 10, 100, 0.1
NUM_STEPS, NUM_RUNS = 1000, 20

FEATURES, CLASSES, NUM_SAMPLES = 32, 10, 1000
SMALL_POOL, LARGE_POOL = 10_000, 100_000


def make_enn(key: jax.Array) -> AbstractENN:
    """Return the epinet of the testbed, before training."""
    knowledge = PriorKnowledge(INPUT_DIM, 2, jnp.asarray(NUM_STEPS), jnp.asarray(TEMPERATURE))
    return EpinetAgent().init(knowledge, key=key)


def make_bandit(key: jax.Array) -> NeuralBandit:
    """Return a bandit of the testbed."""
    return NeuralBandit.generate(INPUT_DIM, NUM_ACTIONS, TEMPERATURE, key=key)


def bandits() -> Ratio:
    """Return the time of the requested runs, including compilation."""
    agent = ENNAgent(make_enn, CrossEntropy(l2=0.3), BernoulliReward(), ThompsonSampling(), batch_size=128)
    start = time.process_time()
    runs = run_bandits(agent, make_bandit, num_steps=NUM_STEPS, keys=jr.split(jr.key(0), NUM_RUNS))
    regret = float(jnp.mean(runs.regret[:, -1]))
    # CPU time: on a busy machine, wall time measures other processes.
    used = time.process_time() - start
    sys.stdout.write(f"     decisions: {used:.0f} s of one core, with a mean regret of {regret:.0f}\n")
    return Ratio("decisions: seconds of two cores for 1000 steps of 20 epinet agents", used / 2, 60, at_most=True)


def pool_memory() -> Ratio:
    """Return the temporary memory of scoring a large pool over that of a small one, its scores included."""
    base_key, epinet_key, index_key = named_keys(jr.key(0), "base", "epinet", "index")
    base = MLP(FEATURES, CLASSES, (50,), key=base_key)
    enn = epi.attach(base, out_size=CLASSES, index_dim=8, key=epinet_key)
    draws = Draws.sample(enn.index, NUM_SAMPLES, key=index_key)
    batch_size = choose_batch_size(draws, CLASSES)

    def memory(size: int) -> int:
        # What `bald_scores` compiles, without the checks before it.
        lowered = _uncertainty.lower(enn, jnp.zeros((size, FEATURES)), size, draws, Categorical(), batch_size)
        return temporary_bytes(lowered.compile().compiled)

    ratio = memory(LARGE_POOL) / memory(SMALL_POOL)
    return Ratio("decisions: memory of BALD for 100,000 inputs over 10,000, M = 1000", ratio, 1.1, at_most=True)


def main() -> list[Ratio]:
    """Return the ratios of bandits and pools."""
    return [bandits(), pool_memory()]
