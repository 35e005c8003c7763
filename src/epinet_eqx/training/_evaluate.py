"""Held-out metrics of a model from a stream of batches."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from .._checks import num_examples
from ..losses import Batch
from ._mesh import as_parts, constrain, data_mesh, spread
from ._objectives import Metrics
from ._processes import is_anywhere

Evaluate = Callable[[PyTree, PyTree], dict[str, float]]


def _pad(parts: dict[str, Any], size: int) -> dict[str, Any]:
    """Return a batch padded to `size` examples, and a mask of those that count."""
    count = num_examples("batch", parts)
    if count > size:
        raise ValueError(f"`validation` must yield its largest batch first; got {count} examples after at most {size}.")

    def fill(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        return np.concatenate([array, np.repeat(array[:1], size - count, axis=0)])

    return jax.tree.map(fill, parts) | {"counted": np.arange(size) < count}


def _refuse_nan(sums: dict[str, float], y: np.ndarray) -> None:
    """Raise if a metric of a batch is NaN; objectives set the accuracy to NaN where a label is not a class."""
    if math.isnan(sums.get("accuracy", 0.0)):
        raise ValueError(
            "`validation` must yield labels that are classes of the model; got a batch with others, whose values in "
            f"this process are from {y.min()} to {y.max()}."
        )
    if undefined := [name for name, value in sums.items() if math.isnan(value)]:
        raise ValueError(
            "`validation` must yield finite inputs and targets, and the model must output no NaN for them; got a batch "
            f"whose {undefined[0]} is NaN."
        )


def make_evaluation(
    evaluate: Callable[..., Metrics],
    batches: Callable[[], Iterable[Any]],
    mesh: Mesh | None = None,
    *,
    key: PRNGKeyArray,
) -> Evaluate:
    """Return a function `(model, model_state) -> metrics`: means over all held-out examples of all processes.

    Args:
        evaluate: a function `(model, model_state, batch, *, key)` to a dictionary of metrics, one value per example,
            such as the `evaluate` of an objective.
        batches: returns this process's held-out batches, from the first one on at each call. Numbers of examples need
            not be divisible by anything.
        mesh: the mesh that the model is on; None for one device.
        key: random key, the same in each evaluation: all models are compared at the same indices.
    """
    mesh = data_mesh(jax.devices()[:1]) if mesh is None else mesh

    @eqx.filter_jit
    def total(
        model: PyTree, model_state: PyTree, batch: Batch, counted: Bool[Array, " batch"], key: PRNGKeyArray
    ) -> Metrics:
        values = evaluate(model, model_state, batch, key=key) | {"count": jnp.ones(counted.shape)}
        sums = {name: jnp.sum(jnp.where(counted, value, 0)) for name, value in values.items()}
        return constrain(sums, mesh, shard_parameters=False)

    def run(model: PyTree, model_state: PyTree) -> dict[str, float]:
        sums: dict[str, float] = {}
        size, first = 0, None
        stream = iter(batches())
        parts = next(stream, None)
        while is_anywhere(parts is not None):
            if parts is not None:
                local = as_parts(parts)
                if first is None:
                    first, share = local, mesh.size // jax.process_count()
                    size = -(-num_examples("batch", local) // share) * share
                padded = _pad(local, size)
            elif first is None:
                raise ValueError("`validation` must yield at least one batch in each process; got none.")
            else:
                # Other processes have one more batch: this one takes part with an empty one.
                padded = _pad(first, size) | {"counted": np.zeros(size, dtype=bool)}
            placed = spread(padded, mesh)
            counted = placed.pop("counted")
            found = {
                name: float(value) for name, value in total(model, model_state, Batch(**placed), counted, key).items()
            }
            _refuse_nan(found, padded["y"])
            sums = {name: sums.get(name, 0.0) + value for name, value in found.items()}
            parts = next(stream, None)
        if not sums:
            raise ValueError("`validation` must yield at least one batch; got none.")
        count = sums.pop("count")
        return {name: value / count for name, value in sums.items()}

    return run
