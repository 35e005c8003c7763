"""The scores of a stack of ENNs on their problems, in one compiled program (Section 5)."""

from typing import Any, Literal

import equinox as eqx
import jax
from jaxtyping import Array, Key, PRNGKeyArray

from .._checks import check_positive, num_examples
from .._draws import Draws
from .._enn import AbstractENN
from .._keys import named_keys
from .._xla import jit_for_long_vectors
from ..indices import AbstractIndex
from ..metrics import Estimate
from ._kl import NUM_BATCHES, check_taus, exact_kl, given_kl, sampled_kl
from ._problem import Problem
from ._stacks import num_stacked_problems

# Number of indices of the original estimator.
_NUM_SAMPLES = 1000

_NumSamples = int | None | Literal["auto"]
_Estimator = Literal["exact", "sampled", "given"]


def _choose_draws(index: AbstractIndex, num_samples: _NumSamples, *, chunk_size: int, key: PRNGKeyArray) -> Draws:
    """Return the indices to average over; "auto" takes a finite support of moderate size exactly."""
    if num_samples == "auto":
        support = index.support()
        num_samples = None if support is not None and support.shape[0] <= _NUM_SAMPLES else _NUM_SAMPLES
    if num_samples is None:
        return Draws.all(index, chunk_size=chunk_size)
    return Draws.sample(index, num_samples, key=key, chunk_size=chunk_size)


@jit_for_long_vectors
def _evaluate(
    enns: AbstractENN,
    problems: Problem,
    keys: Array,
    estimator: _Estimator,
    taus: tuple[int, ...],
    num_batches: int,
    num_samples: _NumSamples,
    chunk_size: int,
) -> dict[int, Estimate]:
    """Evaluate one member at a time: each is enough work, and its arrays stay in the cache."""
    arrays, rest = eqx.partition((enns, problems), eqx.is_array)

    def member(args: tuple[Any, Array]) -> dict[int, Estimate]:
        enn, problem = eqx.combine(args[0], rest)
        (index_key,) = named_keys(args[1], "indices")
        draws = _choose_draws(enn.index, num_samples, chunk_size=chunk_size, key=index_key)
        if estimator == "given":
            return given_kl(enn, problem, draws, taus=taus)
        kl = exact_kl if estimator == "exact" else sampled_kl
        return kl(enn, problem, draws, taus=taus, num_batches=num_batches, key=args[1])

    return jax.lax.map(member, (arrays, keys))


def evaluate(
    enns: AbstractENN,
    problems: Problem,
    *,
    taus: tuple[int, ...] = (1, 10),
    estimator: Literal["exact", "sampled"] = "exact",
    num_batches: int = NUM_BATCHES,
    num_samples: _NumSamples = "auto",
    chunk_size: int = 4,
    keys: Key[Array, " problems"],
) -> dict[int, Estimate]:
    """Return the KL divergences of stacked ENNs, each on its own problem: one estimate per tau, with a leading axis.

    Problems with a true model are scored by `exact_kl` or `sampled_kl`, those made from arrays by their own test
    batches. The program does not depend on the number of training examples, so it is compiled once per kind of ENN and
    input dimension. Diverged agents give values that are not finite, see `count_nonfinite`, and leave the others alone.

    Args:
        enns: the ENNs as one module, with a leading axis on every array, as `train_agent` returns them.
        problems: the stack of problems.
        taus: numbers of labels that are predicted jointly.
        estimator: how problems with a true model are scored.
        num_batches: number of test batches of these.
        num_samples: number of indices M; None averages exactly over the finite support of the index, and "auto" does so
            up to a support of 1000, or else draws 1000.
        chunk_size: how many indices are computed at a time.
        keys: one random key per problem; keys that do not depend on the agent let agents be compared in pairs.
    """
    check_taus(taus)
    check_positive("chunk_size", chunk_size)
    if estimator not in ("exact", "sampled"):
        raise ValueError(f'`estimator` must be "exact" or "sampled"; got {estimator!r}.')
    members = num_stacked_problems(problems)
    if keys.shape != (members,):
        raise ValueError(f"`keys` must hold one key per problem, {members}; got shape {keys.shape}.")
    found = num_examples("enns", eqx.filter(enns, eqx.is_array))
    if found != members:
        raise ValueError(f"`enns` must hold one ENN per problem, {members}; got {found}.")
    # Without the training data, whose length would force a recompilation.
    tested = eqx.tree_at(lambda problem: problem.data, problems, None)
    chosen: _Estimator = "given" if problems.model is None else estimator
    return _evaluate(enns, tested, keys, chosen, taus, num_batches, num_samples, chunk_size)
