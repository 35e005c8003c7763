"""Acquisition functions of single candidates on joint samples of their values."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import Scalar, as_real_array, check_finite, check_scalar, check_share
from .._draws import Draws
from .._enn import AbstractENN
from ..predict import sample


def only_output(output: Float[Array, " outputs"]) -> Float[Array, ""]:
    """Return the one output of a network: the value of a regression, or the reward of a reward model."""
    if output.shape != (1,):
        raise ValueError(
            f"`value` must say how {output.shape[0]} outputs become one number, for example `lambda output: output[0]`."
        )
    return output[0]


def sample_values(
    enn: AbstractENN,
    x: PyTree[Array],
    draws: Draws,
    *,
    value: Callable[[Float[Array, " outputs"]], Float[Array, ""]] = only_output,
) -> Float[Array, "samples candidates"]:
    """Return the value of each candidate at sampled indices: a row is one index for *all* candidates.

    Args:
        enn: the ENN.
        x: the candidates, an array or a tree of arrays with a leading axis.
        draws: the indices.
        value: maps an output to the value of a candidate; by default the only output.
    """
    return jax.vmap(jax.vmap(value))(sample(enn, x, draws).outputs)


def check_values(
    values: Float[Array, "samples candidates"], name: str = "values"
) -> Float[Array, "samples candidates"]:
    """Return joint samples, which must be finite and neither without samples nor without candidates."""
    values = as_real_array(name, values)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"`{name}` must have shape (samples, candidates) and not be empty; got {values.shape}.")
    return check_finite(name, values)


def expected_improvement(values: Float[Array, "samples candidates"], best: Scalar) -> Float[Array, " candidates"]:
    """Return by how much each candidate is expected to exceed `best`, where it does.

    Args:
        values: joint samples of the values of all candidates, such as those of `sample_values`.
        best: the best value known so far.
    """
    best = check_scalar("best", best)
    return jnp.mean(jnp.maximum(check_values(values) - best, 0.0), axis=0)


def optimality_probs(values: Float[Array, "samples candidates"]) -> Float[Array, " candidates"]:
    """Return the probability that each candidate is the best of all; equally good ones share.

    Only joint samples tell it: a new index for each candidate says that near copies of the best one are as likely to
    exceed it as anything else.
    """
    values = check_values(values)
    best = (values == jnp.max(values, axis=1, keepdims=True)).astype(values.dtype)
    return jnp.mean(best / jnp.sum(best, axis=1, keepdims=True), axis=0)


def quantile_values(values: Float[Array, "samples candidates"], q: Scalar) -> Float[Array, " candidates"]:
    """Return a quantile of the value of each candidate: above 1/2 explores, below 1/2 is careful.

    Args:
        values: joint samples of the values of all candidates, such as those of `sample_values`.
        q: which quantile, from 0 to 1.
    """
    return jnp.quantile(check_values(values), check_share("q", q), axis=0)
