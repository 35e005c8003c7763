"""One checkpoint on the disk: arrays by Orbax, and a summary as JSON with the checksums of both."""

import json
import math
import os
import pathlib
import zlib
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Array

from .._checks import require_package
from .._files import checksum_of, checksums_of, is_intact, seal
from ._processes import is_anywhere
from ._state import TrainState
from ._streams import DataIterator

_SUMMARY = "checkpoint.json"
_ARRAYS = "arrays"
# Present in the summaries of all versions.
_FIELDS = {"step", "metrics", "data", "arrays"}


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; earlier ones are intact."""


def orbax() -> Any:
    """Return the package that writes arrays; raise if it is not installed."""
    return require_package("orbax.checkpoint", extra="train")


def _is_key(leaf: Any) -> bool:
    """Return whether an array holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name_of(path: Any) -> str:
    """Return the name of an array by its path in the state."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _named_arrays(state: TrainState) -> dict[str, Array]:
    """Return the arrays of a state by name, random keys as their bits."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(state, eqx.is_array))
    return {_name_of(path): jr.key_data(leaf) if _is_key(leaf) else leaf for path, leaf in leaves}


def _with_entries(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that are not empty: Orbax refuses others, such as the output layer of a `headless` network."""
    return {name: array for name, array in arrays.items() if array.size > 0}


def _describe(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return type and shape of each array as text."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def _identity_of(state: TrainState, data: DataIterator) -> dict[str, Any]:
    """Return the identity of a run: its random key, and the `identity` of its stream if it has one."""
    key = zlib.crc32(np.asarray(jr.key_data(state.key)).tobytes())
    return {"key": f"{key:08x}", **getattr(data, "identity", dict)()}


def _gather_positions(data: DataIterator | None) -> list[Any]:
    """Return the positions in the data of all processes."""
    if data is None:
        return []
    try:
        text = json.dumps(data.get_state()).encode()
    except TypeError as error:
        raise ValueError(f"`data` must have a state of JSON values; {error}.") from None
    if jax.process_count() == 1:
        return [json.loads(text)]
    sizes = np.ravel(multihost_utils.process_allgather(np.array(len(text))))
    padded = np.zeros(sizes.max(), dtype=np.uint8)
    padded[: len(text)] = np.frombuffer(text, dtype=np.uint8)
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def describe(state: TrainState, data: DataIterator | None, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a checkpoint before it has checksums. All processes must call it."""
    from .. import __version__

    values = {name: float(value) for name, value in metrics.items()}
    return {
        "version": __version__,
        "step": int(state.step),
        "metrics": {name: value if math.isfinite(value) else None for name, value in values.items()},
        "data": _gather_positions(data),
        "arrays": _describe(_named_arrays(state)),
        "identity": {} if data is None else _identity_of(state, data),
    }


def write_arrays(folder: pathlib.Path, state: TrainState) -> None:
    """Write the arrays of a state, each process its shards."""
    package = orbax()
    with package.Checkpointer(package.StandardCheckpointHandler()) as writer:
        writer.save(folder / _ARRAYS, args=package.args.StandardSave(_with_entries(_named_arrays(state))))


def write_summary(folder: pathlib.Path, summary: dict[str, Any]) -> None:
    """Write the summary with the checksums of the arrays, which must have been written."""
    (folder / _SUMMARY).write_text(json.dumps(seal({**summary, "sums": checksums_of(folder / _ARRAYS)})))


class Stored:
    """A written checkpoint, in a folder named by its step."""

    def __init__(self, folder: pathlib.Path):
        """Initialize with the folder; read and verify the summary."""
        self.folder = folder
        try:
            self.summary = json.loads((folder / _SUMMARY).read_text())
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        if not isinstance(self.summary, dict) or not is_intact(self.summary) or not self.summary.keys() >= _FIELDS:
            raise self._unreadable(f"{_SUMMARY} differs from what was written")

    def _unreadable(self, reason: Any) -> CheckpointError:
        """Return an error with the reason why this cannot be read."""
        return CheckpointError(f"The checkpoint {str(self.folder)!r} cannot be read: {reason}.")

    def flaw(self) -> str | None:
        """Return why the folder is not a complete checkpoint of its step, or None; checksums of arrays are not read."""
        step = self.summary["step"]
        if step != int(self.folder.name):
            return f"It is of step {step}."
        return None if (self.folder / _ARRAYS).is_dir() else "It has no arrays."

    @property
    def metrics(self) -> dict[str, float]:
        """The held-out metrics; empty if the state was not evaluated."""
        return {name: math.nan if value is None else value for name, value in self.summary["metrics"].items()}

    @property
    def has_checksums(self) -> bool:
        """Whether the arrays can be verified; those of older versions have none, or other ones."""
        return "sums" in self.summary

    def damage(self) -> CheckpointError | None:
        """Return an error if a file of the arrays differs from its checksum, else None. All processes must call it.

        Each process reads its share of the files, and all of them learn what one has found.
        """
        files = sorted(self.summary.get("sums", {}).items())
        found = []
        for name, checksum in files[jax.process_index() :: jax.process_count()]:
            try:
                intact = checksum_of(self.folder / _ARRAYS / name) == checksum
            except OSError:
                intact = False
            if not intact:
                found.append(name)
        if not is_anywhere(bool(found)):
            return None
        named = ", ".join(found[:3]) or "a file that another process has read"
        return self._unreadable(f"{named} differs from what was written")

    def check_arrays(self, like: TrainState) -> None:
        """Raise unless the arrays have the names, types and shapes of those of `like`."""
        wanted, found = _describe(_named_arrays(like)), self.summary["arrays"]
        differing = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
        if differing:
            phrases = [f"{name} is {found.get(name, 'missing')}, not {wanted.get(name, 'there')}" for name in differing]
            raise ValueError(
                f"`like` must have the arrays of {str(self.folder)!r}; it differs in {len(phrases)}: "
                f"{', '.join(phrases[:5])}."
            )

    def check_identity(self, like: TrainState, data: DataIterator) -> None:
        """Raise unless key and data are those of the run that wrote this, so that its position means the same batch."""
        mine, theirs = _identity_of(like, data), self.summary.get("identity", {})
        changed = [f"{n} was {theirs[n]} and is {mine[n]}" for n in mine if n in theirs and mine[n] != theirs[n]]
        if changed:
            raise ValueError(
                f"`like` and `data` must be those of the run that wrote {str(self.folder)!r}; got others: "
                f"{', '.join(changed)}. Use another folder, or `allow_changes=True` to continue regardless."
            )

    def read(self, like: TrainState) -> TrainState:
        """Return the state, placed as `like` is."""
        expected, package = _named_arrays(like), orbax()
        shapes = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
            for name, array in _with_entries(expected).items()
        }
        try:
            with package.Checkpointer(package.StandardCheckpointHandler()) as reader:
                found = reader.restore(self.folder / _ARRAYS, args=package.args.StandardRestore(shapes))
        except Exception as error:
            raise self._unreadable(error) from error
        arrays = {**expected, **found}

        def replace(path: Any, leaf: Any) -> Any:
            if not eqx.is_array(leaf):
                return leaf
            array = arrays[_name_of(path)]
            return jr.wrap_key_data(array, impl=jr.key_impl(leaf)) if _is_key(leaf) else array

        return jax.tree_util.tree_map_with_path(replace, like)

    def position(self) -> Any:
        """Return this process's position in the data."""
        positions = self.summary["data"]
        if len(positions) == jax.process_count():
            return positions[jax.process_index()]
        if positions and all(position == positions[0] for position in positions):
            return positions[0]
        raise ValueError(
            f"`data` must be the stream of a run with as many processes as wrote {os.fspath(self.folder)!r}, or its "
            f"positions must be equal; got {len(positions)} different ones for {jax.process_count()} processes."
        )
