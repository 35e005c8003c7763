"""Active learning on digits: how many labels an epinet needs, by how they are chosen."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, named_keys
from epinet_eqx.acquisition import (
    Acquisition,
    PoolLearner,
    acquire,
    at_random,
    balanced_start,
    bald_scores,
    by_batch_bald,
    by_score,
    entropy_scores,
    epig_scores,
    joint_loss_scores,
    margin_scores,
    run_active_learning,
    variance_scores,
)
from epinet_eqx.data import digits
from epinet_eqx.losses import Batch
from epinet_eqx.predict import marginal_log_probs

from ..configs.decisions import ActiveOf
from ..configs.testbed import Variant, variant_of
from ..record import Row
from .decision_agents import InitialENN, knowledge_of, prior_power, sgd_agent

_NUM_CLASSES = 10
_NUM_FEATURES = 64
# The middle one of the testbed's temperatures.
_TEMPERATURE = 0.1
_BATCH_SIZE = 32
# The tuned decay is for labels that are drawn from the prior; on digits it leaves no agent anything to learn with.
DIGITS_DECAY = 1 / 40
_BATCH_BALD_COMBINATIONS = 100
_GROUP = 4

_SCORES = {
    "variance": variance_scores,
    "entropy": entropy_scores,
    "margin": margin_scores,
    "bald": bald_scores,
    "joint-loss": joint_loss_scores,
}


def make_acquisition(config: ActiveOf) -> Acquisition:
    """Return the rule of acquisition by its name."""
    name = config.acquisition
    if name == "uniform":
        return at_random
    if name == "batch-bald":
        return by_batch_bald(num_samples=config.num_samples, max_combinations=_BATCH_BALD_COMBINATIONS)
    if name == "epig":

        def choose(enn: AbstractENN, x: Array, size: int, *, available: Array, key: PRNGKeyArray) -> Array:
            # The pool is in a random order: its first inputs are like any others.
            scores = epig_scores(enn, x, x[: config.num_targets], Draws.sample(enn.index, config.num_samples, key=key))
            return acquire(scores, size, available=available)

        return choose
    return by_score(_SCORES[name], num_samples=config.num_samples)


def on_digits(variant: Variant) -> Variant:
    """Return an agent whose decay suits digits, and other images."""
    return variant_of(variant.agent, **dict(variant.changes), decay=DIGITS_DECAY * sgd_agent(variant).decay)  # pyright: ignore[reportAttributeAccessIssue]


def all_digits() -> tuple[Array, Array]:
    """Return all digits as vectors with standardized entries, and their labels."""
    parts = [digits("train"), digits("test")]
    x = np.concatenate([part.x for part in parts])
    x = x.reshape(len(x), -1)
    standardized = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6)
    return jnp.asarray(standardized), jnp.asarray(np.concatenate([part.y for part in parts]))


def make_learner(config: ActiveOf) -> PoolLearner:
    """Return how the testbed's epinet is trained on labels."""
    agent = sgd_agent(on_digits(variant_of("epinet")))
    total = config.per_class * _NUM_CLASSES + config.num_rounds * config.round_size
    knowledge = knowledge_of(_NUM_FEATURES, _NUM_CLASSES, _TEMPERATURE)
    return PoolLearner(
        InitialENN(agent, knowledge),
        agent.loss(knowledge),
        num_steps=config.num_steps,
        batch_size=_BATCH_SIZE,
        num_index_samples=agent.plan(_NUM_FEATURES, total).num_index_samples,
        prior_power=prior_power(agent),
    )


class Accuracy(eqx.Module):
    """The share of held-out examples that an ENN gets right: a module, so that all rules share a program."""

    x: Float[Array, "batch features"]
    y: Int[Array, " batch"]
    key: PRNGKeyArray
    num_samples: int = eqx.field(static=True)

    def __call__(self, enn: AbstractENN) -> Float[Array, ""]:
        """Return the accuracy of the marginal prediction."""
        log_probs = marginal_log_probs(enn, self.x, Draws.sample(enn.index, self.num_samples, key=self.key))
        return jnp.mean((jnp.argmax(log_probs, axis=1) == self.y).astype(float))


def _runs(config: ActiveOf, learner: PoolLearner, x: Array, y: Array, keys: Array) -> tuple[Array, Array]:
    """Return the number of labels of each round, and the accuracy of each round of each run."""
    acquisition = make_acquisition(config)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        order_key, start_key, run_key, test_key = named_keys(key, "order", "start", "run", "test")
        order = jr.permutation(order_key, x.shape[0])
        mine, held = order[: config.num_pool], order[config.num_pool :]
        pool = Batch.of(x[mine], y[mine])
        run = run_active_learning(
            learner,
            pool,
            acquisition,
            start=balanced_start(pool.y, _NUM_CLASSES, config.per_class, key=start_key),
            num_rounds=config.num_rounds,
            size=config.round_size,
            evaluate=Accuracy(x[held], y[held], test_key, config.num_samples),
            key=run_key,
        )
        return run.num_labels, run.evaluations

    return eqx.filter_vmap(one)(keys)


def labels_needed(counts: Sequence[int], accuracies: Sequence[float], level: float) -> float:
    """Return the labels at which a curve first reaches a level, on a line between rounds; infinite if it never does."""
    before: tuple[int, float] | None = None
    for count, value in zip(counts, accuracies, strict=True):
        if value >= level:
            if before is None or value == before[1]:
                return float(count)
            return before[0] + (count - before[0]) * (level - before[1]) / (value - before[1])
        before = (count, value)
    return float("inf")


def groups(configs: Mapping[str, ActiveOf]) -> list[list[str]]:
    """Return a few rules together, which share the program that trains; all have the same splits and beginnings."""
    names = list(configs)
    return [names[start : start + _GROUP] for start in range(0, len(names), _GROUP)]


def run(configs: Sequence[ActiveOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return for each rule the accuracy of each round of each run, and the number of labels that each run needs."""
    return run_on(configs, *all_digits(), key=key)


def run_on(
    configs: Sequence[ActiveOf], x: Float[Array, "examples 64"], y: Int[Array, " examples"], *, key: PRNGKeyArray
) -> list[list[Row]]:
    """Return the same of any data with as many features and classes as digits have.

    Args:
        configs: the rules.
        x: all inputs, of which each run has its own pool; the others are held out.
        y: their labels.
        key: random key.
    """
    (own_key,) = named_keys(key, "runs")
    learner = make_learner(configs[0])
    found = []
    for config in configs:
        counts, accuracies = jax.device_get(_runs(config, learner, x, y, jr.split(jr.clone(own_key), config.num_runs)))
        common: dict[str, Any] = {"acquisition": config.acquisition, "level": config.level}
        rows: list[Row] = []
        for seed in range(config.num_runs):
            curve = [(int(n), float(value)) for n, value in zip(counts[seed], accuracies[seed], strict=True)]
            rows += [
                {**common, "row": "round", "seed": seed, "labels": count, "accuracy": value} for count, value in curve
            ]
            needed = labels_needed([n for n, _ in curve], [value for _, value in curve], config.level)
            rows.append({**common, "row": "needed", "seed": seed, "labels": needed, "budget": curve[-1][0]})
        found.append(rows)
    return found
