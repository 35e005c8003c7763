"""Training examples with their numbers (Algorithm 1)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped

from .._checks import check_width, num_examples


def _as_arrays(tree: PyTree) -> PyTree[Array]:
    """Return the tree with every leaf as a JAX array."""
    # What is too large for the precision becomes infinite, which training refuses; NumPy need not warn of it.
    with np.errstate(over="ignore"):
        return jax.tree.map(lambda leaf: jnp.asarray(check_width("x", leaf)), tree)


def _as_targets(y: Any) -> Array:
    """Return targets as a JAX array."""
    with np.errstate(over="ignore"):
        return jnp.asarray(check_width("y", y))


def _as_numbers(i: Any) -> Array:
    """Return the numbers of examples as a JAX array."""
    numbers = jnp.asarray(check_width("i", i))
    # A float would be rounded when it becomes a key, and two examples would share one bootstrap weight.
    if not jnp.issubdtype(numbers.dtype, jnp.integer):
        raise ValueError(f"`i` must hold the integer number of each example; got {numbers.dtype}.")
    return numbers


class Batch(eqx.Module):
    r"""Examples $(x_i, y_i, i)$ with a leading batch axis: a whole data set, or a part of it.

    `i` identifies the example to the bootstrap, so it must be its number in the whole data set, the same in every
    epoch.
    """

    x: PyTree[Array] = eqx.field(converter=_as_arrays)
    y: Shaped[Array, "batch ..."] = eqx.field(converter=_as_targets)
    i: Int[Array, " batch"] = eqx.field(converter=_as_numbers)

    def __check_init__(self):
        """Raise unless all arrays have one batch size above zero."""
        num_examples("Batch(x, y, i)", (self.x, self.y, self.i))

    @classmethod
    def of(cls, x: Any, y: Any) -> "Batch":
        """Return a data set of inputs `x` (an array or a tree of arrays) and targets `y`, numbered from zero."""
        length = num_examples("(x, y)", (x, y))
        return cls(x, y, np.arange(length))
