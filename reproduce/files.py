"""Files that are either the old or the new version, never a half of one."""

import contextlib
import glob
import os
import time
from pathlib import Path

from .errors import ReproduceError

_ABANDONED_SECONDS = 24 * 3600


def _forget_killed(path: Path) -> None:
    """Delete temporary neighbors that a killed process left: a file a day old has no writer left."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file through a temporary neighbor and a rename; on any failure the old file stays as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _forget_killed(path)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        # If a part of the path is a file, there is nothing to delete, and `unlink` would fail.
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise ReproduceError(
                f"{path} could not be written ({reason}); what was there before is unchanged."
            ) from error
        raise
