"""What is said about a name that does not exist."""

import difflib
from collections.abc import Iterable


def unknown_name(argument: str, value: str, known: Iterable[str], *, shown: int = 8) -> ValueError:
    """Return the error for an unknown name: it lists the near ones, or the first `shown` where none is near.

    Args:
        argument: the argument that was given.
        value: its value.
        known: all names there are.
        shown: how many names to list where none is near; the rest is counted.
    """
    names = list(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.6)
    listed = close or names[:shown]
    rest = "" if close or len(names) <= shown else f" and {len(names) - shown} more"
    near = "near it are " if close else "there are "
    return ValueError(f"`{argument}` must be a known name, {near}{', '.join(listed)}{rest}; got {value!r}.")
