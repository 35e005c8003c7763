"""Checks of training data, before anything compiles."""

from collections.abc import Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_finite
from .._enn import AbstractENN, num_outputs
from ..losses import AbstractLoss, Batch


def as_batch(name: str, data: Any) -> Batch:
    """Return data in memory, given as a `Batch` or as a pair `(x, y)`, as a `Batch`."""
    if isinstance(data, Batch):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Batch.of(*data)
    raise ValueError(f"`{name}` must be a `Batch` or a pair `(x, y)`; got {type(data).__name__}.")


def as_stream(data: Any) -> Iterator[Any] | None:
    """Return the iterator of an iterable of batches, or None for data in memory."""
    in_memory = isinstance(data, Batch) or (isinstance(data, tuple) and not all(isinstance(d, Batch) for d in data))
    if in_memory or not isinstance(data, Iterable) or isinstance(data, np.ndarray | Array | dict | str):
        return None
    return iter(data)


def check_data(name: str, data: Batch, enn: AbstractENN, loss: AbstractLoss) -> None:
    """Raise unless `enn` can be trained on all of these examples with this loss."""
    check_finite(f"x of {name}", data.x)
    loss.check_targets(data.y, num_outputs(enn, first(data.x)))


def first(tree: PyTree) -> PyTree:
    """Return the first entry of every array of `tree`, random keys apart, which would count as used."""

    def take(leaf: Any) -> Any:
        is_number = eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf[0] if is_number else leaf

    return jax.tree.map(take, tree)
