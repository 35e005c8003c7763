"""Stacks of testbed problems against one problem at a time."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.testbed import (
    AbstractSGDAgent,
    Problem,
    Setting,
    evaluate,
    find_agent,
    generate_problems,
    problem_keys,
    settings,
    train_agent,
)
from epinet_eqx.training import EpistemicObjective, init_state, train_step

from ._measure import Ratio

NUM_SAMPLES = 1000
NUM_BATCHES = 1000
TAUS = (1, 10)


def five_seeds() -> list[Setting]:
    """Return the problems of one setting."""
    return [s for s in settings() if (s.input_dim, s.data_ratio, s.temperature) == (10, 10, 0.1)]


def stacked(key: jax.Array) -> Any:
    """Train and evaluate the epinet on five problems as this library does."""
    problem_key, agent_key, test_key = named_keys(key, "problems", "agents", "tests")
    problems = generate_problems(five_seeds(), key=problem_key)
    enns = train_agent(find_agent("epinet"), problems, keys=problem_keys(five_seeds(), key=agent_key))
    return evaluate(
        enns, problems, num_batches=NUM_BATCHES, num_samples=NUM_SAMPLES, keys=problem_keys(five_seeds(), key=test_key)
    )


def _train_alone(problem: Problem, key: jax.Array) -> AbstractENN:
    """Train the epinet on one problem with a compiled step in a Python loop."""
    agent = find_agent("epinet")
    assert isinstance(agent, AbstractSGDAgent)
    init_key, train_key, batch_key = named_keys(key, "init", "train", "batch")
    known = problem.knowledge
    plan = agent.plan(known.input_dim, int(known.num_train))
    optimizer, loss = optax.adam(plan.learning_rate), agent.loss(known)
    state = init_state(agent.init(known, key=init_key), optimizer, key=train_key)

    @eqx.filter_jit
    def step(state: Any, batch: Any) -> Any:
        objective = EpistemicObjective(loss, num_index_samples=plan.num_index_samples)
        return train_step(state, batch, objective, optimizer)[0]

    @jax.jit
    def draw(number: jax.Array) -> jax.Array:
        return jr.permutation(jr.fold_in(batch_key, number), int(known.num_train))[: plan.batch_size]

    for number in range(plan.num_steps):
        ids = draw(jnp.asarray(number))
        state = step(state, jax.tree.map(lambda leaf, ids=ids: leaf[ids], problem.data))
    return state.model


def _evaluate_alone(enn: AbstractENN, problem: Problem, tau: int, key: jax.Array) -> jax.Array:
    """Return the divergence from sampled test batches, with one call of the ENN per index."""
    anchor_key, draw_key, label_key, index_key = named_keys(key, "anchors", "draws", "labels", "indices")
    assert problem.model is not None
    anchors = jr.normal(anchor_key, (NUM_BATCHES, 2, problem.knowledge.input_dim))
    which = jr.randint(draw_key, (NUM_BATCHES, tau), 0, 2)
    xs = jnp.take_along_axis(anchors, which[..., None], axis=1).reshape(NUM_BATCHES * tau, -1)
    log_true = jax.nn.log_softmax(jax.jit(jax.vmap(problem.model))(xs))
    ys = jr.categorical(label_key, log_true)

    @eqx.filter_jit
    def log_prob(enn: AbstractENN, z: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(jax.vmap(enn, in_axes=(0, None))(xs, z))
        chosen = jnp.take_along_axis(log_p, ys[:, None], axis=1)
        return jnp.sum(chosen.reshape(NUM_BATCHES, tau), axis=1)

    found = [log_prob(enn, enn.index.sample(key=jr.fold_in(index_key, number))) for number in range(NUM_SAMPLES)]
    predicted = jax.nn.logsumexp(jnp.stack(found), axis=0) - jnp.log(NUM_SAMPLES)
    true = jnp.sum(jnp.take_along_axis(log_true, ys[:, None], axis=1).reshape(NUM_BATCHES, tau), axis=1)
    return jnp.mean(true - predicted)


def alone(key: jax.Array) -> list[jax.Array]:
    """Train and evaluate the epinet on one problem by itself."""
    problem_key, agent_key, test_key = named_keys(key, "problems", "agents", "tests")
    own = Problem.generate(five_seeds()[0], key=problem_key)
    enn = _train_alone(own, agent_key)
    return [_evaluate_alone(enn, own, tau, jr.fold_in(test_key, tau)) for tau in TAUS]


def seconds(function: Any, *args: Any) -> float:
    """Return how long a call takes from a cold start, compilation included."""
    jax.clear_caches()
    start = time.perf_counter()
    jax.block_until_ready(eqx.filter(function(*args), eqx.is_array))
    return time.perf_counter() - start


def main() -> list[Ratio]:
    """Return how many times faster a stack is than one problem after the other, compilation included."""
    times = [(seconds(alone, jr.key(number)), seconds(stacked, jr.key(number))) for number in range(2)]
    one, together = (min(column) for column in zip(*times, strict=True))
    # Each problem alone compiles its own programs, so five take five times as long as one.
    ratio = len(five_seeds()) * one / together
    return [Ratio("testbed: five problems one at a time, over one stack", ratio, 10)]
