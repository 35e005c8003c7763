"""Stack problems of equal input dimension, so that one compiled program serves all of them (Section 5)."""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key, PRNGKeyArray

from .._checks import num_examples
from .._stack import stack, take
from .._xla import jit_for_one_run, jit_unoptimized
from ..losses import Batch
from ._problem import Problem, generate_arrays
from ._setting import Setting

_T = TypeVar("_T")

# One small program, instead of one for each array or step.
_take: Any = jit_unoptimized(take)
_fold_in_each: Any = jit_unoptimized(jax.vmap(jr.fold_in, in_axes=(None, 0)))

# Data are padded up to this many examples: the memory is negligible, and a compilation is saved.
_PADDED = 10_000
_MAX_RATIO = 1000


def padded_size(input_dim: int, num_train: int) -> int:
    """Return the length that the data of a problem are padded to, the same for most sizes of one input dimension."""
    return max(num_train, min(_MAX_RATIO * input_dim, _PADDED))


def num_stacked_problems(problems: Problem) -> int:
    """Return the number of problems of a stack."""
    shape = problems.knowledge.num_train.shape
    if len(shape) != 1:
        raise ValueError(
            f"`problems` must be a stack, with one leading axis as `stack_problems` makes it; got {len(shape)} axes."
        )
    return shape[0]


def problem_keys(problems: Sequence[Setting], *, key: PRNGKeyArray) -> Key[Array, " problems"]:
    """Return one key per setting, which depends on `key` and the problem's number only."""
    return _fold_in_each(key, jnp.asarray([setting.number for setting in problems]))


@jit_for_one_run
def _generate_many(input_dim: int, length: int, num_train: Array, temperatures: Array, keys: Array) -> Problem:
    """Draw problems of one input dimension."""
    return eqx.filter_vmap(lambda *arrays: generate_arrays(input_dim, length, *arrays))(num_train, temperatures, keys)


def generate_problems(problems: Sequence[Setting], *, key: PRNGKeyArray) -> Problem:
    """Draw the problems of several settings of one input dimension as a stack, padded by `padded_size`.

    Each is the one that `Problem.generate` draws with its own key of `problem_keys`.
    """
    if not problems:
        raise ValueError("`problems` must hold at least one setting; got none.")
    dims = sorted({setting.input_dim for setting in problems})
    if len(dims) > 1:
        raise ValueError(f"`problems` must have one input dimension; got {dims}.")
    length = max(padded_size(setting.input_dim, setting.num_train) for setting in problems)
    num_train = jnp.asarray([setting.num_train for setting in problems], dtype=jnp.int32)
    temperatures = jnp.asarray([setting.temperature for setting in problems], dtype=float)
    return _generate_many(dims[0], length, num_train, temperatures, problem_keys(problems, key=key))


def stack_problems(problems: Sequence[Problem], *, pad_to: int | None = None) -> Problem:
    """Return problems of one input dimension as a stack, their data padded with zeros.

    Args:
        problems: the problems; all with a true model, or all with test batches of the same shapes.
        pad_to: length of the data; by default that of the largest.
    """
    if not problems:
        raise ValueError("`problems` must hold at least one problem; got none.")
    dims = sorted({problem.knowledge.input_dim for problem in problems})
    if len(dims) > 1:
        raise ValueError(f"`problems` must have one input dimension; got {dims}.")
    longest = max(num_examples("data", problem.data) for problem in problems)
    length = longest if pad_to is None else pad_to
    if length < longest:
        raise ValueError(f"`pad_to` must be at least the largest number of examples, {longest}; got {pad_to}.")

    def padded(problem: Problem) -> Problem:
        missing = length - num_examples("data", problem.data)
        x = jnp.pad(problem.data.x, ((0, missing), (0, 0)))
        y = jnp.pad(problem.data.y, (0, missing))
        data = Batch(x, y, jnp.arange(length, dtype=problem.data.i.dtype))
        return Problem(data, problem.knowledge, problem.model, problem.tests)

    return stack("problems", [padded(problem) for problem in problems])


def take_member(stacked: _T, number: int) -> _T:
    """Return member `number` of a stack: of a problem, or of an ENN."""
    return _take(stacked, jnp.asarray(number))
