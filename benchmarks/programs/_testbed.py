"""The evaluation of the Neural Testbed."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from epinet_eqx import AbstractENN, Draws, named_keys
from epinet_eqx.testbed import GenerativeModel, Problem, evaluate, exact_kl, sampled_kl

from ._program import Program
from ._training import CLASSES, INPUTS, knowledge_at, make_agent, make_data

BATCHES, SAMPLES, CHUNK = 100, 100, 4


def _problem_and_enn(value: float) -> tuple[Problem, AbstractENN]:
    """Return a problem of this temperature, and the epinet for it before training."""
    knowledge = knowledge_at(value)
    problem = Problem(make_data(2), knowledge, GenerativeModel(INPUTS, CLASSES, value, key=jr.key(0)), ())
    return problem, make_agent("epinet").init(knowledge, key=jr.key(1))


def _estimate(estimator: Any, value: float) -> Program:
    """Return an estimator of the divergence as a program."""
    problem, enn = _problem_and_enn(value)

    def run(enn: AbstractENN, problem: Problem, key: jax.Array) -> Any:
        (index_key,) = named_keys(key, "indices")
        draws = Draws.sample(enn.index, SAMPLES, key=index_key, chunk_size=CHUNK)
        return estimator(enn, problem, draws, num_batches=BATCHES, key=key)

    return Program(run, (enn, problem, jr.key(2)), enn, SAMPLES // CHUNK)


def kl_exact(value: float) -> Program:
    """The exact divergence, of one and of ten labels."""
    return _estimate(exact_kl, value)


def kl_sampled(value: float) -> Program:
    """The divergence from sampled test batches, of one and of ten labels."""
    return _estimate(sampled_kl, value)


def evaluation_as_called(value: float) -> Program:
    """The evaluation of a stack of one, called as a user does."""
    problem, enn = _problem_and_enn(value)
    problems, enns = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, (problem, enn))
    options = {"num_batches": BATCHES, "num_samples": SAMPLES, "chunk_size": CHUNK, "keys": jr.key(2)[None]}
    return Program(ft.partial(evaluate, **options), (enns, problems), enn)
