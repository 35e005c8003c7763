"""Inputs and targets, checked before anything compiles."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, PyTree, Shaped

from ._checks import as_real_array, check_finite, num_examples, raise_wrong_input
from ._enn import AbstractENN, num_outputs
from ._likelihoods import AbstractLikelihood


class Examples(NamedTuple):
    """Checked inputs, how many they are, and the number of outputs of the network there."""

    x: PyTree[Array]
    length: int
    num_outputs: int


@eqx.filter_jit
def _like_output(enn: AbstractENN, x: PyTree[Array]) -> Array:
    """Return zeros of the shape of an output. Only its shape is computed, which compiled functions cache."""
    return jnp.zeros(num_outputs(enn, x))


def check_examples(enn: AbstractENN, name: str, x: PyTree[ArrayLike]) -> Examples:
    """Return inputs with a leading batch axis as finite arrays that `enn` accepts."""
    length = num_examples(name, x)
    x = jax.tree.map(lambda leaf: as_real_array(name, leaf), x)
    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)
    try:
        outputs = eqx.filter_eval_shape(_like_output, enn, first).shape[0]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise_wrong_input(name, "enn", x, error)
    return Examples(check_finite(name, x), length, outputs)


def check_targets(
    likelihood: AbstractLikelihood, y: Shaped[ArrayLike, "..."], examples: Examples
) -> Shaped[Array, "batch ..."]:
    """Return targets, one for each example, that `likelihood` accepts."""
    if not isinstance(likelihood, AbstractLikelihood):
        raise ValueError(f"`likelihood` must be one, such as `Categorical()`; got {type(likelihood).__name__}.")
    y = as_real_array("y", y)
    if y.ndim == 0 or y.shape[0] != examples.length:
        raise ValueError(f"`y` must hold one target per example of `x`, {examples.length}; got shape {y.shape}.")
    return likelihood.check_targets(y, examples.num_outputs)
