"""Choosing a few of many candidates by joint predictions, by marginals, exactly, and by chance (Appendix B)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, named_keys
from epinet_eqx._xla import jit_for_one_run
from epinet_eqx.decisions import any_success, as_independent, choose_set, sample_labels, set_reward
from epinet_eqx.testbed import GenerativeModel, Problem, Setting, generate_problems, problem_keys, train_agent

from ..artifacts.dec_sets import SetsOf
from ..record import Row
from .decision_agents import sgd_agent


def make_candidates(
    config: SetsOf, copies: Int[Array, ""], *, key: PRNGKeyArray
) -> Float[Array, "candidates features"]:
    """Return a pool: standard normal inputs, or groups of so many inputs that are close to one another."""
    center_key, spread_key = named_keys(key, "centers", "spread")
    shape = (config.num_candidates, config.input_dim)
    centers = jr.normal(center_key, shape)[jnp.arange(config.num_candidates) // copies]
    spread = jnp.where(copies > 1, config.spread, 0.0)
    return centers + spread * jr.normal(spread_key, shape)


def all_sets(num_candidates: int, size: int) -> Bool[np.ndarray, "sets candidates"]:
    """Return all sets of a size, as masks."""
    members = np.array(list(itertools.combinations(range(num_candidates), size)))
    masks = np.zeros((len(members), num_candidates), dtype=bool)
    masks[np.arange(len(members))[:, None], members] = True
    return masks


def choose(
    config: SetsOf, enn: AbstractENN, model: GenerativeModel, copies: Int[Array, ""], *, key: PRNGKeyArray
) -> dict[str, Float[Array, ""]]:
    """Return the true expected reward of the set that each way of choosing takes, from one pool."""
    pool_key, label_key, order_key = named_keys(key, "pool", "labels", "order")
    x = make_candidates(config, copies, key=pool_key)
    (index_key,) = named_keys(label_key, "index")
    labels = sample_labels(enn, x, Draws.sample(enn.index, config.num_samples, key=index_key), key=label_key)
    sets = jnp.asarray(all_sets(config.num_candidates, config.set_size))
    # Given the true model, labels are independent.
    failure = 1 - jax.nn.softmax(jax.vmap(model)(x))[:, 1]
    true_rewards = 1 - jnp.prod(jnp.where(sets, failure[None, :], 1.0), axis=1)
    predicted = jax.lax.map(lambda chosen: set_reward(any_success, labels, chosen), sets)

    def greedy(outcomes: Int[Array, "samples candidates"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        choice = choose_set(any_success, outcomes, config.set_size)
        return 1 - jnp.prod(failure[choice.positions]), choice.rewards[-1]

    earned, expected = jax.vmap(greedy)(jnp.stack([labels, as_independent(labels, key=order_key)]))
    return {
        "joint": earned[0],
        "marginal": earned[1],
        "exact": true_rewards[jnp.argmax(predicted)],
        "random": jnp.mean(true_rewards),
        "truth": jnp.max(true_rewards),
        "ratio": expected[0] / jnp.max(predicted),
    }


@jit_for_one_run
def _choose_all(config: SetsOf, enns: AbstractENN, problems: Problem, copies: Int[Array, ""], keys: Array) -> Any:
    """Return the mean over pools of what `choose` returns, for each problem."""
    arrays, rest = eqx.partition((enns, problems.model), eqx.is_array)

    def member(args: tuple[Any, Array]) -> Any:
        enn, model = eqx.combine(args[0], rest)
        own_keys = jr.split(args[1], config.num_pools)
        found = jax.vmap(lambda own_key: choose(config, enn, model, copies, key=own_key))(own_keys)
        return jax.tree.map(jnp.mean, found)

    return jax.lax.map(member, (arrays, keys))


def groups(configs: Mapping[str, SetsOf]) -> list[list[str]]:
    """Return the temperatures of one agent together: they share their programs."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        found.setdefault(replace(config, temperature=0.0), []).append(name)
    return list(found.values())


def run(configs: Sequence[SetsOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return what the chosen sets earn: one row for each problem and number of copies."""
    config = configs[0]
    problem_key, agent_key, pool_key = named_keys(key, "problems", "agents", "pools")
    settings = [
        Setting(
            input_dim=config.input_dim,
            data_ratio=config.data_ratio,
            temperature=own.temperature,
            seed=seed,
            number=1 + seed + config.num_problems * number,
        )
        for number, own in enumerate(configs)
        for seed in range(config.num_problems)
    ]
    problems = generate_problems(settings, key=problem_key)
    enns = train_agent(sgd_agent(config.variant), problems, keys=problem_keys(settings, key=agent_key))
    keys = problem_keys(settings, key=pool_key)
    rows: list[list[Row]] = [[] for _ in configs]
    for copies in config.copies:
        # One program for all temperatures and numbers of copies, and the same random numbers for all of these.
        alike = replace(config, temperature=0.0)
        found = jax.device_get(_choose_all(alike, enns, problems, jnp.asarray(copies), jr.clone(keys)))
        for number, own in enumerate(configs):
            for seed in range(config.num_problems):
                at = number * config.num_problems + seed
                rewards = {name: values[at] for name, values in found.items()}
                rows[number].append(
                    {
                        "agent": own.variant.agent,
                        "label": own.variant.label,
                        "temperature": own.temperature,
                        "copies": copies,
                        "seed": seed,
                        **rewards,
                    }
                )
    return rows
