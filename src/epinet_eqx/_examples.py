"""Inputs and targets, checked before anything compiles."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, PRNGKeyArray, PyTree, Shaped

from ._checks import as_real_array, check_finite, num_examples, raise_wrong_input
from ._enn import AbstractENN, num_outputs
from ._likelihoods import CATEGORICAL, AbstractLikelihood


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


def read_labels(
    y: Shaped[ArrayLike, "batch ..."], length: int, num_classes: int, tau: int, key: PRNGKeyArray | None
) -> tuple[Shaped[Array, "batch ..."], int]:
    """Return labels as they come, or how often each occurred, with the largest number of labels of an input.

    Args:
        y: one class per input; or integer counts of each class; or probabilities, from which `tau` labels are drawn.
        length: number of inputs.
        num_classes: number of classes.
        tau: number of labels of an input, where `y` does not say it.
        key: random key of labels that are drawn.
    """
    given = as_real_array("y", y)
    if given.shape == (length,):
        return CATEGORICAL.check_targets(given, num_classes), tau
    if given.shape != (length, num_classes):
        raise ValueError(
            f"`y` must hold one label per input, ({length},), or counts or probabilities of all classes, "
            f"({length}, {num_classes}); got shape {given.shape}."
        )
    given = check_finite("y", given)
    if bool(jnp.any(given < 0)):
        raise ValueError(f"`y` must not be negative; got {float(jnp.min(given)):g}.")
    if jnp.issubdtype(given.dtype, jnp.integer):
        # Counts of small types may have totals that these cannot hold.
        given = given.astype(jnp.int32)
    totals = jnp.sum(given, axis=1)
    if jnp.issubdtype(given.dtype, jnp.integer):
        if int(jnp.min(totals)) < 1 or int(jnp.max(totals)) < 2:
            raise ValueError(
                "`y` must count at least one label of each input, and two of some; "
                f"got from {int(jnp.min(totals))} to {int(jnp.max(totals))}."
            )
        return given, int(jnp.max(totals))
    if bool(jnp.any(jnp.abs(totals - 1) > 1e-3)):
        worst = float(totals[jnp.argmax(jnp.abs(totals - 1))])
        raise ValueError(f"`y` must hold probabilities that sum to 1 for each input; got {worst:g}.")
    if key is None:
        raise ValueError("`key` must be given where `y` holds probabilities, to draw labels from them; got None.")
    drawn = jr.categorical(key, jnp.log(given)[:, None, :], shape=(length, tau))
    return jnp.sum(jax.nn.one_hot(drawn, num_classes, dtype=int), axis=1), tau
