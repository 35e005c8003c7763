"""The Neural Testbed: agents on problems, as many at once as one compiled program can train (Section 5, Appendix F)."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.random as jr
from jaxtyping import PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.testbed import (
    AbstractAgent,
    Problem,
    Setting,
    count_nonfinite,
    evaluate,
    find_agent,
    find_setting,
    generate_problems,
    problem_keys,
    train_agent,
    training_groups,
)

from ..configs.testbed import CurvesOf, Score, Variant
from ..record import Row
from .testbed_cost import parameter_counts, training_flops

# At most so many numbers of training data, and so many particles, in one stack.
_MAX_DATA = 60_000_000
_MAX_PARTICLES = 100


def make_agent(variant: Variant) -> AbstractAgent:
    """Return the agent of the registry with the changes of a variant."""
    return dataclasses.replace(find_agent(variant.agent), **dict(variant.changes))  # pyright: ignore[reportArgumentType]


def _max_members(agent: AbstractAgent, setting: Setting, wanted: int) -> int:
    """Return how many problems like this one fit into a stack."""
    by_data = _MAX_DATA // (setting.input_dim * setting.num_train)
    by_particles = _MAX_PARTICLES // getattr(agent, "num_particles", 1)
    return max(1, min(wanted, by_data, by_particles))


def groups(configs: Mapping[str, Score | CurvesOf]) -> list[list[str]]:
    """Return the runs in groups that are trained at once: of one agent, and of one shape of problem."""
    by_variant: dict[Any, dict[int, str]] = {}
    for name, config in configs.items():
        like = dataclasses.replace(config, problem=0)
        by_variant.setdefault(like, {})[config.problem] = name
    found = []
    for like, names in by_variant.items():
        agent = make_agent(like.variant)
        kinds = training_groups(agent, [find_setting(number) for number in names], max_members=len(names))
        for kind in kinds:
            most = _max_members(agent, kind[0], like.max_members)
            # Equal parts, so that they share a program: 20 problems are 10 and 10, not 15 and 5.
            size = -(-len(kind) // -(-len(kind) // most))
            parts = [kind[start : start + size] for start in range(0, len(kind), size)]
            found += [[names[setting.number] for setting in part] for part in parts]
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """An agent's ENNs on a stack of problems, and what they took."""

    agent: AbstractAgent
    settings: Sequence[Setting]
    problems: Problem
    enns: AbstractENN
    test_keys: Any
    seconds: float

    def row(self, variant: Variant, number: int) -> dict[str, Any]:
        """Return what the rows of one problem have in common."""
        setting = self.settings[number]
        return {
            "agent": variant.agent,
            "label": variant.label,
            "problem": setting.number,
            "input_dim": setting.input_dim,
            "data_ratio": setting.data_ratio,
            "temperature": setting.temperature,
            "seed": setting.seed,
        }


def train(variant: Variant, numbers: Sequence[int], *, chain: int = 0, key: PRNGKeyArray) -> Trained:
    """Train an agent on problems of one group.

    All agents meet the same problems and tests, and variants of an agent begin alike: their differences are paired.

    Args:
        variant: the agent.
        numbers: the problems.
        chain: another number trains the agent again, independently.
        key: random key of the whole testbed.
    """
    problem_key, test_key, agent_key = named_keys(key, "problems", "tests", "agents")
    agent = make_agent(variant)
    settings = [find_setting(number) for number in numbers]
    problems = generate_problems(settings, key=problem_key)
    (own_key,) = named_keys(jr.fold_in(agent_key, chain), variant.agent)
    start = time.perf_counter()
    enns = jax.block_until_ready(train_agent(agent, problems, keys=problem_keys(settings, key=own_key)))
    return Trained(
        agent=agent,
        settings=settings,
        problems=problems,
        enns=enns,
        test_keys=problem_keys(settings, key=test_key),
        seconds=(time.perf_counter() - start) / len(settings),
    )


def score(configs: Sequence[Score], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the divergences of one agent on problems of one group: one row for each."""
    config = configs[0]
    trained = train(config.variant, [other.problem for other in configs], key=key)
    estimates = evaluate(
        trained.enns,
        trained.problems,
        taus=(1, 10),
        num_batches=config.num_batches,
        keys=trained.test_keys,
    )
    parameters, trainable = parameter_counts(trained.enns)
    flops = training_flops(trained.agent, trained.settings[0])
    found = jax.device_get(
        {tau: (est.mean, est.standard_error, count_nonfinite(est)) for tau, est in estimates.items()}
    )
    return [
        [
            {
                **trained.row(config.variant, number),
                "parameters": parameters,
                "trainable": trainable,
                "flops": flops,
                "marginal": found[1][0][number],
                "marginal_error": found[1][1][number],
                "joint": found[10][0][number],
                "joint_error": found[10][1][number],
                "nonfinite": found[1][2][number] + found[10][2][number],
                "num_samples": estimates[10].num_samples,
                "exact": estimates[10].exact,
                "seconds": round(trained.seconds, 3),
            }
        ]
        for number in range(len(configs))
    ]


def curves(configs: Sequence[CurvesOf], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return divergences over the number of labels, over the number of indices, and by both estimators."""
    config = configs[0]
    trained = train(config.variant, [other.problem for other in configs], key=key)
    rows: list[list[Row]] = [[] for _ in configs]

    def add(curve: str, **options: Any) -> None:
        estimates = evaluate(
            trained.enns, trained.problems, num_batches=config.num_batches, keys=trained.test_keys, **options
        )
        for tau, estimate in estimates.items():
            means, errors = jax.device_get((estimate.mean, estimate.standard_error))
            for number, own in enumerate(rows):
                result = {"mean": means[number], "error": errors[number], "num_samples": estimate.num_samples}
                own.append({**trained.row(config.variant, number), "curve": curve, "tau": tau, **result})

    exact = tuple(tau for tau in config.taus if tau <= 20)
    sampled = tuple(tau for tau in config.taus if tau >= 10)
    most = config.num_samples[-1]
    used = most if trained.enns.index.support() is None else None
    add("labels, exact", taus=exact, num_samples=used)
    add("labels, sampled", taus=sampled, estimator="sampled", num_samples=used)
    for num_samples in () if used is None else config.num_samples:
        add("indices", taus=(1, 10), num_samples=num_samples)
    return rows
