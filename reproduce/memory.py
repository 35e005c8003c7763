"""Programs that processes share or forget, and what is said when there is not enough memory."""

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .errors import ReproduceError

_ADVICE = (
    "the device has not enough memory for this batch. `--accumulate 2` (or 4, 8, ...) sends it through in parts, and "
    "more devices make the part of each smaller; `--dry-run` says how much memory a step needs."
)

_MAPS = Path("/proc/self/maps")
_MAX_MAPS = Path("/proc/sys/vm/max_map_count")


def share_programs(folder: str) -> None:
    """Let this process, which has not imported JAX, share compiled programs with others through a folder.

    Programs compiled by another process are read, not recompiled. A store that the user has named is kept.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    # A program read while another process writes it is recompiled.
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry", UserWarning)


def forget_programs() -> None:
    """Forget compiled programs if they have taken half of the memory maps that Linux allows a process.

    Every program holds some of them, hundreds of programs hold all, and the next one is a segmentation fault.
    """
    if _MAX_MAPS.exists() and _MAPS.exists():
        with _MAPS.open("rb") as lines:
            taken = sum(1 for _ in lines)
        if taken > int(_MAX_MAPS.read_text()) // 2:
            import jax

            jax.clear_caches()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory was exhausted, on a device or here."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def told(results: Iterable[Any]) -> Iterator[Any]:
    """Yield results; running out of memory becomes a sentence that says what to do."""
    try:
        yield from results
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise ReproduceError(f"Out of memory: {_ADVICE}") from error
        raise
