"""Inputs of a run besides its configuration: folders, and the use of the machine.

They do not change results, so they are not part of a configuration or its hash.
"""

from dataclasses import dataclass
from pathlib import Path

from .errors import ReproduceError


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Folders and use of the machine, from the command line.

    Attributes:
        data_dir: folder of a data set.
        weights: folder of trained networks.
        cache: folder of results that units share, such as features; created when needed.
        networks: where networks are kept while an artifact is not complete, set by the runner; None for nowhere.
        accumulate: number of parts that a batch goes through in, where it does not fit into memory.
        loaders: processes that read and decode images; 0 for threads.
    """

    data_dir: Path | None = None
    weights: Path | None = None
    cache: Path | None = None
    networks: Path | None = None
    accumulate: int = 1
    loaders: int = 0

    def require(self, name: str, *, expected: str) -> Path:
        """Return a folder, which must have been given and be there.

        Args:
            name: name of the attribute.
            expected: what the folder should hold and how to get it, for the error message.
        """
        option = f"`--{name.replace('_', '-')}`"
        folder: Path | None = getattr(self, name)
        if folder is None:
            raise ReproduceError(f"{option} must be given; expected {expected}.")
        if not folder.is_dir():
            raise ReproduceError(f"{option} must be a folder that exists; got {folder}. Expected {expected}.")
        return folder


NOTHING = Inputs()
"""No folder, and defaults for the machine."""
