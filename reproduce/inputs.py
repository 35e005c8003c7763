"""What a run needs beside its configuration: folders, and how to use the machine.

None of it changes what is computed, so it is no part of a configuration or of its hash.
"""

from dataclasses import dataclass
from pathlib import Path

from .errors import ReproduceError


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the command line says of folders and of the machine.

    Attributes:
        data_dir: folder of a data set.
        weights: folder of trained networks.
        cache: folder for what is computed once and shared by units, such as features; made when needed.
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
"""No folder, and the machine as it is."""
