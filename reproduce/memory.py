"""What is done and said before a device or the machine has not enough memory."""

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
