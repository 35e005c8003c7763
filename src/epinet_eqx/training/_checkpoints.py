"""Checkpoints that appear whole or not at all (written with Orbax)."""

import json
import math
import os
import pathlib
import shutil
import warnings
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

from .._checks import check_positive
from .._files import checksum_of, checksums_of, is_intact, seal
from ._processes import is_anywhere, wait_for_all
from ._state import TrainState
from ._streams import DataIterator

_SUMMARY = "checkpoint.json"
_ARRAYS = "arrays"
_WRITING = ".writing-"
_DELETING = ".deleting-"
_DELETION_ATTEMPTS = 10
# What the summaries of all versions have.
_FIELDS = {"step", "metrics", "data", "arrays"}


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; earlier ones are intact."""


def _orbax() -> Any:
    """Return the package that writes arrays, or say how to install it."""
    try:
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise ImportError("Checkpoints need orbax-checkpoint: install `epinet_eqx[train]`.") from error
    return orbax


def _is_key(leaf: Any) -> bool:
    """Return whether an array holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _named_arrays(state: TrainState) -> dict[str, Array]:
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


def _fingerprint(state: TrainState) -> str:
    """Return what stands for the random key of a training."""
    return f"{zlib.crc32(np.asarray(jr.key_data(state.key)).tobytes()):08x}"


def _identity_of(data: DataIterator | None) -> dict[str, Any]:
    """Return what a stream says about itself: nothing, unless it has a method `identity`."""
    return getattr(data, "identity", dict)()


def _delete(path: pathlib.Path) -> None:
    """Delete a folder or a file, if it is there."""
    # Threads of a failed writer may still make files in a folder while it is emptied: then it is not empty at the end.
    for _ in range(_DELETION_ATTEMPTS):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if not path.exists():
            break


class Checkpoints:
    """A folder of checkpoints, one folder in it per checkpoint, named by the number of steps made.

    A checkpoint holds the state, the position in the data of each process, and held-out metrics. It is written under
    another name and gets its own by one rename, and it loses its name before it is deleted: what has a number is whole.
    Its files have checksums, which are compared when it is read. What has a number and is not whole, because a disk
    failed or something else put it there, is passed over with a warning.
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
        self._damaged: set[int] = set()
        self._warned: set[str] = set()
        self._verified: int | None = None

    def steps(self) -> list[int]:
        """Return the numbers of steps that there are checkpoints of, in increasing order."""
        return sorted({int(path.name) for path in self._numbered() if self._is_whole(path)} - self._damaged)

    def _numbered(self) -> list[pathlib.Path]:
        """Return what has a number for a name."""
        return [path for path in self.folder.iterdir() if path.name.isdecimal()]

    def _is_whole(self, path: pathlib.Path) -> bool:
        """Return whether something with a number is a checkpoint with all of its parts; warn if it is not."""
        step = int(path.name)
        if path != self.path(step) or not path.is_dir():
            self._warn(path, "It is none")
            return False
        try:
            said = self._summary(step)["step"]
        except CheckpointError as error:
            # One that was deleted meanwhile is no cause for a warning.
            if path.exists():
                self._warn(path, str(error))
            return False
        if said != step or not (path / _ARRAYS).is_dir():
            self._warn(path, f"It is of step {said}" if said != step else "It has no arrays")
            return False
        return True

    def _warn(self, path: pathlib.Path, reason: str) -> None:
        """Warn, once, that something is passed over."""
        if path.name not in self._warned and jax.process_index() == 0:
            message = f"{str(path)!r} is passed over in search of a checkpoint. {reason.rstrip('.')}."
            warnings.warn(message, UserWarning, stacklevel=2)
        self._warned.add(path.name)

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
            summary = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"The checkpoint {str(path.parent)!r} cannot be read: {error}.") from error
        if not isinstance(summary, dict) or not is_intact(summary) or not summary.keys() >= _FIELDS:
            raise CheckpointError(
                f"The checkpoint {str(path.parent)!r} cannot be read: {_SUMMARY} is not as it was written."
            )
        return summary

    def _damage(self, step: int) -> str | None:
        """Return what differs from the checksums of a checkpoint, or None. All processes must call it.

        Each process reads its share of the files, and all of them know what one has found.
        """
        files = sorted(self._summary(step).get("files", {}).items())
        arrays = self.path(step) / _ARRAYS
        found = []
        for name, checksum in files[jax.process_index() :: jax.process_count()]:
            try:
                intact = checksum_of(arrays / name) == checksum
            except OSError:
                intact = False
            if not intact:
                found.append(name)
        if not is_anywhere(bool(found)):
            return None
        named = ", ".join(found[:3]) or "a file that another process has read"
        return f"The checkpoint {str(arrays.parent)!r} cannot be read: {named} is not as it was written."

    def latest_intact_step(self) -> int | None:
        """Return the number of steps of the latest checkpoint whose files have their checksums. All processes call it.

        Later ones that do not are passed over with a warning. None means that there is no checkpoint at all; if there
        are some and all are damaged, `CheckpointError` is raised.
        """
        reasons: dict[int, str] = {}
        for step in reversed(self.steps()):
            damage = self._damage(step)
            if damage is None:
                # They count no longer, neither as the latest nor among those that stay.
                self._damaged |= reasons.keys()
                for later, reason in reasons.items():
                    self._warn(self.path(later), reason)
                self._verified = step
                return step
            reasons[step] = damage
        held = [path for path in self._numbered() if path.is_dir() and any(path.iterdir())]
        if held:
            reason = next(iter(reasons.values())) if reasons else f"{str(min(held))!r} is not whole."
            raise CheckpointError(
                f"There is no whole checkpoint in {str(self.folder)!r}. {reason} Move what is there away to start anew."
            )
        return None

    def _from_best(self) -> list[int]:
        """Return the steps that have the metric, the best first and the later of equal ones last."""
        scores = {step: self.metrics(step).get(self._metric, math.nan) for step in self.steps()}
        found = {step: self._sign * score for step, score in scores.items() if math.isfinite(score)}
        return sorted(found, key=lambda step: (found[step], step))

    def _remove(self, path: pathlib.Path) -> None:
        """Delete a folder, which first loses its name."""
        hidden = path if path.name.startswith(".") else path.with_name(_DELETING + path.name)
        if hidden != path:
            _delete(hidden)
            path.rename(hidden)
        _delete(hidden)

    def clean(self) -> None:
        """Delete what writers that were killed have left; `train` does, as one folder belongs to one run."""
        for path in self.folder.glob(".*"):
            if path.name.startswith((_WRITING, _DELETING)):
                self._remove(path)

    def save(
        self, state: TrainState, data: DataIterator | None = None, *, metrics: Mapping[str, float] | None = None
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
            "identity": {"key": _fingerprint(state), **_identity_of(data)},
        }
        try:
            if is_first:
                self.clean()
                draft.mkdir()
            wait_for_all("checkpoint begun")
            self._write_arrays(draft / _ARRAYS, arrays)
            if is_first:
                summary["files"] = checksums_of(draft / _ARRAYS)
                (draft / _SUMMARY).write_text(json.dumps(seal(summary)))
                if final.exists():
                    self._remove(final)
                draft.rename(final)
            self._damaged.discard(step)
        except Exception as error:
            _delete(draft)
            kept = self.latest_step()
            raise CheckpointError(
                f"The checkpoint of step {step} could not be written to {str(self.folder)!r}: {error}. "
                + ("There is none before it." if kept is None else f"That of step {kept} is whole.")
            ) from error
        if is_first:
            keep = {*self.steps()[-self._keep_last :], *self._from_best()[: self._keep_best]}
            for old in set(self.steps()) - keep:
                self._remove(self.path(old))
        wait_for_all("checkpoint written")
        return final

    def _write_arrays(self, path: pathlib.Path, arrays: dict[str, Array]) -> None:
        """Write arrays, each process its shards."""
        orbax = _orbax()
        with orbax.Checkpointer(orbax.StandardCheckpointHandler()) as writer:
            writer.save(path, args=orbax.args.StandardSave(_with_entries(arrays)))

    def restore(
        self,
        like: TrainState,
        data: DataIterator | None = None,
        *,
        step: int | None = None,
        allow_changes: bool = False,
    ) -> TrainState:
        """Return the state of a checkpoint, and set `data` to its position. All processes must call it.

        The number of devices or processes may be another than that of the run that wrote it.

        Args:
            like: a state of the same structure, placed as the result is to be; its values are not used, but with `data`
                its key must be that of the run.
            data: the stream to set; its batch size, order and examples must be those of the run, as far as it has a
                method `identity` that tells.
            step: which checkpoint; by default the latest whose files have their checksums.
            allow_changes: whether a checkpoint of another key, batch size or data set may be used with `data`.
        """
        chosen = self.latest_intact_step() if step is None else step
        if chosen is None or chosen not in self.steps():
            raise ValueError(f"`step` must be one of {self.steps()} in {str(self.folder)!r}; got {step}.")
        summary, expected = self._summary(chosen), _named_arrays(like)
        # What was verified to choose it need not be read twice.
        verified, self._verified = self._verified, None
        if verified != chosen and (damage := self._damage(chosen)):
            raise CheckpointError(damage)
        if "files" not in summary and jax.process_index() == 0:
            message = (
                f"The checkpoint {str(self.path(chosen))!r} is of an older version and has no checksums to verify."
            )
            warnings.warn(message, UserWarning, stacklevel=2)
        wanted, found = _describe(expected), summary["arrays"]
        if wanted != found:
            differing = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
            phrases = [f"{name} is {found.get(name, 'missing')}, not {wanted.get(name, 'there')}" for name in differing]
            raise ValueError(
                f"`like` must have the arrays of {str(self.path(chosen))!r}; it differs in {len(phrases)}: "
                f"{', '.join(phrases[:5])}."
            )
        if data is not None and not allow_changes and "identity" in summary:
            mine, theirs = {"key": _fingerprint(like), **_identity_of(data)}, summary["identity"]
            changed = [f"{n} was {theirs[n]} and is {mine[n]}" for n in mine if n in theirs and mine[n] != theirs[n]]
            if changed:
                raise ValueError(
                    f"`like` and `data` must be those of the run that wrote {str(self.path(chosen))!r}; got others: "
                    f"{', '.join(changed)}. Use another folder, or `allow_changes=True` to go on regardless."
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

    def resume(self, state: TrainState, data: DataIterator, *, allow_changes: bool = False) -> TrainState:
        """Return the state of the latest checkpoint, or `state` itself if there is none. All processes must call it.

        What killed writers left behind is deleted: one folder belongs to one run.

        Args:
            state: the state to start from.
            data: the stream, which goes to the position of the checkpoint.
            allow_changes: as in `restore`.
        """
        if jax.process_index() == 0:
            self.clean()
        latest = self.latest_intact_step()
        return state if latest is None else self.restore(state, data, step=latest, allow_changes=allow_changes)

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
