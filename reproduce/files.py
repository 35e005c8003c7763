"""Files that are either the old or the new version, never a half of one."""

import os
from pathlib import Path

from .errors import ReproduceError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file through a temporary neighbor and a rename; on any failure the old file stays as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise ReproduceError(
                f"{path} could not be written ({reason}); what was there before is unchanged."
            ) from error
        raise
