"""Checkpoints that appear whole or not at all (written with Orbax)."""

import json
import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import Array

from .._checks import check_positive
from ._errors import CheckpointError
from ._iterators import DataIterator
from ._state import ScaleState

_SUMMARY = "checkpoint.json"
_ARRAYS = "arrays"
_WRITING = ".writing-"
_DELETING = ".deleting-"


def _orbax() -> Any:
    """Return the package that writes arrays, or say how to install it."""
    try:
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise ImportError("Checkpoints need orbax-checkpoint: install `epinet_eqx[train]`.") from error
    return orbax


def _wait_for_all(name: str) -> None:
    """Wait until all processes have come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def _is_key(leaf: Any) -> bool:
    """Return whether an array holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _named_arrays(state: ScaleState) -> dict[str, Array]:
    """Return the arrays of a state by their path, random keys as their bits."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(state, eqx.is_array))
    names = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
    return {name: jr.key_data(leaf) if _is_key(leaf) else leaf for name, leaf in names.items()}


def _with_entries(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that are not empty: Orbax refuses the others, such as the output layer of a `headless` one."""
    return {name: array for name, array in arrays.items() if array.size > 0}


def _describe(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return type and shape of each array as text."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


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


class Checkpoints:
    """A folder of checkpoints, one folder in it per checkpoint, named by the number of steps made.

    A checkpoint holds the state, the position in the data of each process, and held-out metrics. It is written under
    another name and gets its own by one rename, and it loses its name before it is deleted: what has a number is whole.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep_last: int = 3,
        keep_best: int = 1,
        metric: str = "loss",
        mode: str = "min",
    ):
        """Initialize; the folder is made if it is not there.

        Args:
            folder: a folder on a file system that all processes share.
            keep_last: how many of the latest checkpoints stay.
            keep_best: how many of those with the best metric stay beside them.
            metric: the held-out metric that says which is best.
            mode: whether smaller ("min") or larger ("max") is better.
        """
        check_positive("keep_last", keep_last)
        if keep_best < 0:
            raise ValueError(f"`keep_best` must be at least 0; got {keep_best}.")
        if mode not in ("min", "max"):
            raise ValueError(f"`mode` must be 'min' or 'max'; got {mode!r}.")
        _orbax()
        self.folder = pathlib.Path(os.path.abspath(folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._keep_last = keep_last
        self._keep_best = keep_best
        self._metric = metric
        self._sign = 1.0 if mode == "min" else -1.0

    def steps(self) -> list[int]:
        """Return the numbers of steps that there are checkpoints of, in increasing order."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdecimal())

    def latest_step(self) -> int | None:
        """Return the number of steps of the latest checkpoint, or None."""
        return max(self.steps(), default=None)

    def best_step(self) -> int | None:
        """Return the number of steps of the checkpoint with the best metric, or None if none has one."""
        return next(iter(self._from_best()), None)

    def metrics(self, step: int) -> dict[str, float]:
        """Return the held-out metrics of a checkpoint; empty if it was not evaluated."""
        stored = self._summary(step)["metrics"]
        return {name: math.nan if value is None else value for name, value in stored.items()}

    def path(self, step: int) -> pathlib.Path:
        """Return the folder of a checkpoint."""
        return self.folder / f"{step:09d}"

    def _summary(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint says of itself."""
        path = self.path(step) / _SUMMARY
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"The checkpoint {str(path.parent)!r} cannot be read: {error}.") from error

    def _from_best(self) -> list[int]:
        """Return the steps that have the metric, the best first and the later of equal ones last."""
        scores = {step: self.metrics(step).get(self._metric, math.nan) for step in self.steps()}
        found = {step: self._sign * score for step, score in scores.items() if math.isfinite(score)}
        return sorted(found, key=lambda step: (found[step], step))

    def _remove(self, path: pathlib.Path) -> None:
        """Delete a folder, which first loses its name."""
        hidden = path if path.name.startswith(".") else path.with_name(_DELETING + path.name)
        if hidden != path:
            shutil.rmtree(hidden, ignore_errors=True)
            path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _clean(self) -> None:
        """Delete what interrupted runs have left."""
        for path in self.folder.glob(".*"):
            if path.name.startswith((_WRITING, _DELETING)):
                self._remove(path)

    def save(
        self, state: ScaleState, data: DataIterator | None = None, *, metrics: Mapping[str, float] | None = None
    ) -> pathlib.Path:
        """Write a checkpoint, delete those that need not stay, and return its folder. All processes must call it.

        Args:
            state: the state.
            data: the stream whose position is saved.
            metrics: held-out metrics of the state, if it was evaluated.
        """
        from .. import __version__

        step, arrays, is_first = int(state.step), _named_arrays(state), jax.process_index() == 0
        final = self.path(step)
        draft = final.with_name(_WRITING + final.name)
        summary = {
            "version": __version__,
            "step": step,
            "metrics": {name: value if math.isfinite(value) else None for name, value in (metrics or {}).items()},
            "data": _gather_positions(data),
            "arrays": _describe(arrays),
        }
        try:
            if is_first:
                self._clean()
                draft.mkdir()
            _wait_for_all("checkpoint begun")
            self._write_arrays(draft / _ARRAYS, arrays)
            if is_first:
                (draft / _SUMMARY).write_text(json.dumps(summary))
                if final.exists():
                    self._remove(final)
                draft.rename(final)
        except Exception as error:
            shutil.rmtree(draft, ignore_errors=True)
            kept = self.latest_step()
            raise CheckpointError(
                f"The checkpoint of step {step} could not be written to {str(self.folder)!r}: {error}. "
                + ("There is none before it." if kept is None else f"That of step {kept} is whole.")
            ) from error
        if is_first:
            keep = {*self.steps()[-self._keep_last :], *self._from_best()[: self._keep_best]}
            for old in set(self.steps()) - keep:
                self._remove(self.path(old))
        _wait_for_all("checkpoint written")
        return final

    def _write_arrays(self, path: pathlib.Path, arrays: dict[str, Array]) -> None:
        """Write arrays, each process its shards."""
        orbax = _orbax()
        with orbax.Checkpointer(orbax.StandardCheckpointHandler()) as writer:
            writer.save(path, args=orbax.args.StandardSave(_with_entries(arrays)))

    def restore(self, like: ScaleState, data: DataIterator | None = None, *, step: int | None = None) -> ScaleState:
        """Return the state of a checkpoint, and set `data` to its position. All processes must call it.

        The number of devices or processes may be another than that of the run that wrote it.

        Args:
            like: a state of the same structure, placed as the result is to be; its values are not used.
            data: the stream to set.
            step: which checkpoint; the latest by default.
        """
        chosen = self.latest_step() if step is None else step
        if chosen is None or chosen not in self.steps():
            raise ValueError(f"`step` must be one of {self.steps()} in {str(self.folder)!r}; got {step}.")
        summary, expected = self._summary(chosen), _named_arrays(like)
        wanted, found = _describe(expected), summary["arrays"]
        if wanted != found:
            differing = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
            phrases = [f"{name} is {found.get(name, 'missing')}, not {wanted.get(name, 'there')}" for name in differing]
            raise ValueError(
                f"`like` must have the arrays of {str(self.path(chosen))!r}; it differs in {len(phrases)}: "
                f"{', '.join(phrases[:5])}."
            )
        arrays = self._read_arrays(self.path(chosen) / _ARRAYS, expected)
        if data is not None:
            data.set_state(_own_position(summary["data"], self.path(chosen)))

        def replace(path: Any, leaf: Any) -> Any:
            if not eqx.is_array(leaf):
                return leaf
            array = arrays[jax.tree_util.keystr(path, simple=True, separator=".")]
            return jr.wrap_key_data(array, impl=jr.key_impl(leaf)) if _is_key(leaf) else array

        return jax.tree_util.tree_map_with_path(replace, like)

    def _read_arrays(self, path: pathlib.Path, like: dict[str, Array]) -> dict[str, Array]:
        """Return arrays placed as those of `like`."""
        orbax = _orbax()
        shapes = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
            for name, array in _with_entries(like).items()
        }
        try:
            with orbax.Checkpointer(orbax.StandardCheckpointHandler()) as reader:
                return {**like, **reader.restore(path, args=orbax.args.StandardRestore(shapes))}
        except Exception as error:
            raise CheckpointError(f"The checkpoint {str(path.parent)!r} cannot be read: {error}.") from error


def _own_position(positions: list[Any], path: pathlib.Path) -> Any:
    """Return this process's position in the data."""
    if len(positions) == jax.process_count():
        return positions[jax.process_index()]
    if positions and all(position == positions[0] for position in positions):
        return positions[0]
    raise ValueError(
        f"`data` must be the stream of a run with as many processes as wrote {str(path)!r}, or its positions must be "
        f"equal; got {len(positions)} different ones for {jax.process_count()} processes."
    )
