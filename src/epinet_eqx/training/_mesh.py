"""Devices as one mesh: states copied to them or split into shards, batches spread over them."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from .._checks import check_width, num_examples
from ..losses import Batch

_AXIS = "data"

# Splitting smaller arrays costs more time than it saves memory.
_MIN_SHARDED_SIZE = 2**12


def data_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """Return a mesh with the one axis "data" over all devices of all processes, or over those given."""
    chosen = jax.devices() if devices is None else list(devices)
    if not chosen:
        raise ValueError("`devices` must hold at least one device; got none.")
    # With explicit axes, batch statistics under `vmap` fail.
    return jax.make_mesh((len(chosen),), (_AXIS,), axis_types=(AxisType.Auto,), devices=chosen)


def array_sharding(mesh: Mesh, shape: tuple[int, ...], *, sharded: bool) -> NamedSharding:
    """Return the placement of an array of a state: shards along its longest divisible axis, or a copy per device."""
    places: list[str | None] = [None] * len(shape)
    divisible = [axis for axis, size in enumerate(shape) if size % mesh.size == 0]
    if sharded and divisible and np.prod(shape) >= _MIN_SHARDED_SIZE:
        places[max(divisible, key=lambda axis: shape[axis])] = _AXIS
    return NamedSharding(mesh, PartitionSpec(*places))


def place(tree: PyTree, mesh: Mesh, *, shard_parameters: bool = False) -> PyTree:
    """Return `tree` with its arrays on the mesh.

    All processes must call it with the same values.

    Args:
        tree: a state, or any tree.
        mesh: the mesh.
        shard_parameters: whether large arrays are split into shards, one per device, instead of copied to each: this
            divides the memory of parameters, optimizer state and averages by the number of devices.
    """

    def put(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        sharding = array_sharding(mesh, leaf.shape, sharded=shard_parameters)
        if sharding.is_fully_addressable or not leaf.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jr.wrap_key_data(put(jr.key_data(leaf)), impl=jr.key_impl(leaf))
        # Each process takes its shards from its own copy of the value.
        return jax.make_array_from_callback(leaf.shape, sharding, np.asarray(leaf).__getitem__)

    return jax.tree.map(put, tree)


def constrain(tree: PyTree, mesh: Mesh | None, *, shard_parameters: bool) -> PyTree:
    """Return `tree`, inside a compiled program, with its arrays placed as by `place`; unchanged without a mesh."""
    if mesh is None:
        return tree

    def fix(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        sharding = array_sharding(mesh, leaf.shape, sharded=shard_parameters)
        return jax.lax.with_sharding_constraint(leaf, sharding)

    return jax.tree.map(fix, tree)


def spread(tree: PyTree, mesh: Mesh) -> PyTree[Array]:
    """Return arrays whose leading axis is spread over the mesh, from the part that each process holds."""
    local = num_examples("batch", tree)
    if local * jax.process_count() % mesh.size != 0:
        raise ValueError(
            f"`batch` must hold a number of examples that the {mesh.size} devices of the mesh divide; "
            f"got {local} in each of {jax.process_count()} processes."
        )
    sharding = NamedSharding(mesh, PartitionSpec(_AXIS))
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)


def _on_host(leaf: Any) -> np.ndarray:
    """Return a leaf as an array of NumPy; a masked one keeps its mask, to be refused."""
    return leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)


def as_parts(batch: Any) -> dict[str, Any]:
    """Return `x`, `y` and `i` of a `Batch`, or of a dictionary with these names."""
    if isinstance(batch, Batch):
        return {"x": batch.x, "y": batch.y, "i": batch.i}
    if isinstance(batch, Mapping) and {"x", "y", "i"} <= batch.keys():
        parts = {name: batch[name] for name in ("x", "y", "i")}
        parts = {
            name: jax.tree.map(lambda leaf, name=name: check_width(name, _on_host(leaf)), part)
            for name, part in parts.items()
        }
        if not np.issubdtype(parts["i"].dtype, np.integer):
            raise ValueError(f"`i` must hold the integer number of each example; got {parts['i'].dtype}.")
        return parts
    raise ValueError(
        "`data` must be a tuple `(x, y)`, or yield a `Batch` or a dictionary with `x`, `y` and `i`; "
        f"got one that yields {type(batch).__name__}."
    )


def global_batch(batch: Any, mesh: Mesh) -> Batch:
    """Return the batch of all processes, spread over the mesh, from this process's part of it.

    Args:
        batch: this process's examples: a `Batch`, or a dictionary of NumPy arrays with the names `x`, `y` and `i`,
            which are copied once.
        mesh: the mesh.
    """
    return Batch(**spread(as_parts(batch), mesh))
