"""A folder of checkpoints: retention, the latest intact one, atomic creation and deletion."""

import math
import os
import pathlib
import shutil
import warnings
from collections.abc import Mapping
from typing import Any

import jax

from .._checks import check_positive
from .._files import StrPath
from ._processes import wait_for_all
from ._state import TrainState
from ._stored import CheckpointError, Stored, describe, orbax, write_arrays, write_summary
from ._streams import DataIterator

_WRITING = ".writing-"
_DELETING = ".deleting-"
_DELETION_ATTEMPTS = 10


def _delete(path: pathlib.Path) -> None:
    """Delete a folder or a file, if it exists."""
    # Threads of a failed writer may still create files in a folder while it is emptied.
    for _ in range(_DELETION_ATTEMPTS):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if not path.exists():
            break


def _remove(path: pathlib.Path) -> None:
    """Delete a folder, after renaming it."""
    hidden = path if path.name.startswith(".") else path.with_name(_DELETING + path.name)
    if hidden != path:
        _delete(hidden)
        path.rename(hidden)
    _delete(hidden)


class Checkpoints:
    """A folder of checkpoints, one folder in it per checkpoint, named by the number of steps made.

    A checkpoint holds the state, the position in the data of each process, and held-out metrics. It is written under
    another name and gets its own by one rename, and it loses its name before it is deleted: what has a number is
    complete. Its files have checksums, which are compared when it is read. Anything that has a number and is not
    complete, because a disk failed or something else put it there, is skipped with a warning.
    """

    def __init__(
        self, folder: StrPath, *, keep_last: int = 3, keep_best: int = 1, metric: str = "loss", mode: str = "min"
    ):
        """Initialize; create the folder if it does not exist.

        Args:
            folder: a folder on a file system that all processes share.
            keep_last: how many of the latest checkpoints stay.
            keep_best: how many of those with the best metric to keep in addition.
            metric: the held-out metric that decides which is best.
            mode: whether smaller ("min") or larger ("max") is better.
        """
        check_positive("keep_last", keep_last)
        if keep_best < 0:
            raise ValueError(f"`keep_best` must be at least 0; got {keep_best}.")
        if mode not in ("min", "max"):
            raise ValueError(f"`mode` must be 'min' or 'max'; got {mode!r}.")
        orbax()
        self.folder = pathlib.Path(os.path.abspath(folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._keep_last = keep_last
        self._keep_best = keep_best
        self._metric = metric
        self._sign = 1.0 if mode == "min" else -1.0
        self._damaged: set[int] = set()
        self._warned: set[str] = set()
        self._verified: int | None = None

    def path(self, step: int) -> pathlib.Path:
        """Return the folder of a checkpoint."""
        return self.folder / f"{step:09d}"

    def _numbered(self) -> list[pathlib.Path]:
        """Return all entries whose name is a number."""
        return [path for path in self.folder.iterdir() if path.name.isdecimal()]

    def _warn(self, path: pathlib.Path, reason: str) -> None:
        """Warn once that an entry is skipped."""
        if path.name not in self._warned and jax.process_index() == 0:
            message = f"{str(path)!r} is skipped in search of a checkpoint. {reason}"
            warnings.warn(message, UserWarning, stacklevel=2)
        self._warned.add(path.name)

    def _is_complete(self, path: pathlib.Path) -> bool:
        """Return whether a numbered entry is a complete checkpoint; warn if it is not."""
        if path != self.path(int(path.name)) or not path.is_dir():
            self._warn(path, "It is none.")
            return False
        try:
            flaw = Stored(path).flaw()
        except CheckpointError as error:
            # No warning for one that was deleted in the meantime.
            flaw = str(error) if path.exists() else ""
        if flaw:
            self._warn(path, flaw)
        return flaw is None

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, in increasing order."""
        return sorted({int(path.name) for path in self._numbered() if self._is_complete(path)} - self._damaged)

    def latest_step(self) -> int | None:
        """Return the number of steps of the latest checkpoint, or None."""
        return max(self.steps(), default=None)

    def best_step(self) -> int | None:
        """Return the number of steps of the checkpoint with the best metric, or None if none has one."""
        return next(iter(self._from_best()), None)

    def _from_best(self) -> list[int]:
        """Return the steps that have the metric, the best first and the later of equal ones last."""
        scores = {step: self.metrics(step).get(self._metric, math.nan) for step in self.steps()}
        found = {step: self._sign * score for step, score in scores.items() if math.isfinite(score)}
        return sorted(found, key=lambda step: (found[step], step))

    def metrics(self, step: int) -> dict[str, float]:
        """Return the held-out metrics of a checkpoint; empty if it was not evaluated."""
        return Stored(self.path(step)).metrics

    def latest_intact_step(self) -> int | None:
        """Return the number of steps of the latest checkpoint whose files have their checksums. All processes call it.

        Later ones that do not are skipped with a warning. None means that there is no checkpoint at all; if there are
        some and all are damaged, `CheckpointError` is raised.
        """
        reasons: dict[int, str] = {}
        for step in reversed(self.steps()):
            damage = Stored(self.path(step)).damage()
            if damage is None:
                # Damaged ones count neither as the latest nor among those kept.
                self._damaged |= reasons.keys()
                for later, reason in reasons.items():
                    self._warn(self.path(later), reason)
                self._verified = step
                return step
            reasons[step] = str(damage)
        held = [path for path in self._numbered() if path.is_dir() and any(path.iterdir())]
        if held:
            reason = next(iter(reasons.values())) if reasons else f"{str(min(held))!r} is not complete."
            raise CheckpointError(
                f"There is no intact checkpoint in {str(self.folder)!r}. {reason} Move its content away to start over."
            )
        return None

    def clean(self) -> None:
        """Delete leftovers of killed writers."""
        for path in self.folder.glob(".*"):
            if path.name.startswith((_WRITING, _DELETING)):
                _remove(path)

    def save(
        self, state: TrainState, data: DataIterator | None = None, *, metrics: Mapping[str, Any] | None = None
    ) -> pathlib.Path:
        """Write a checkpoint, delete those that are no longer kept, and return its folder. All processes must call it.

        Args:
            state: the state.
            data: the stream whose position is saved.
            metrics: held-out metrics of the state, if it was evaluated.
        """
        step, is_first = int(state.step), jax.process_index() == 0
        final = self.path(step)
        draft = final.with_name(_WRITING + final.name)
        summary = describe(state, data, metrics or {})
        try:
            if is_first:
                self.clean()
                draft.mkdir()
            wait_for_all("checkpoint begun")
            write_arrays(draft, state)
            if is_first:
                write_summary(draft, summary)
                if final.exists():
                    _remove(final)
                draft.rename(final)
            self._damaged.discard(step)
        except Exception as error:
            _delete(draft)
            kept = self.latest_step()
            raise CheckpointError(
                f"The checkpoint of step {step} could not be written to {str(self.folder)!r}: {error}. "
                + ("There is no earlier one." if kept is None else f"That of step {kept} is intact.")
            ) from error
        if is_first:
            keep = {*self.steps()[-self._keep_last :], *self._from_best()[: self._keep_best]}
            for old in set(self.steps()) - keep:
                _remove(self.path(old))
        wait_for_all("checkpoint written")
        return final

    def restore(
        self,
        like: TrainState,
        data: DataIterator | None = None,
        *,
        step: int | None = None,
        allow_changes: bool = False,
    ) -> TrainState:
        """Return the state of a checkpoint, and set `data` to its position. All processes must call it.

        The number of devices or processes may differ from that of the run that wrote it.

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
        stored = Stored(self.path(chosen))
        # A checkpoint that was verified when it was chosen need not be verified again.
        verified, self._verified = self._verified, None
        if verified != chosen and (damage := stored.damage()):
            raise damage
        if not stored.has_checksums and jax.process_index() == 0:
            message = f"The checkpoint {str(stored.folder)!r} is of an older version and has no checksums of this one."
            warnings.warn(message, UserWarning, stacklevel=2)
        stored.check_arrays(like)
        if data is not None and not allow_changes:
            stored.check_identity(like, data)
        state = stored.read(like)
        if data is not None:
            data.set_state(stored.position())
        return state

    def resume(self, state: TrainState, data: DataIterator, *, allow_changes: bool = False) -> TrainState:
        """Return the state of the latest checkpoint, or `state` itself if there is none. All processes must call it.

        Deletes what killed writers left behind: one folder belongs to one run.

        Args:
            state: the state to start from.
            data: the stream, which goes to the position of the checkpoint.
            allow_changes: as in `restore`.
        """
        if jax.process_index() == 0:
            self.clean()
        latest = self.latest_intact_step()
        return state if latest is None else self.restore(state, data, step=latest, allow_changes=allow_changes)
