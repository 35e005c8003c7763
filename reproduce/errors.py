"""Errors that a user can act on: printed as a sentence, without a traceback."""

import difflib
from collections.abc import Iterable


class ReproduceError(Exception):
    """Something about the request, the records or the disk; the message suggests a remedy."""


class UsageError(ReproduceError):
    """The command was not understood."""


def unknown(option: str, value: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist, with the close ones first."""
    names = list(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return UsageError(f"`{option}` must be one of {', '.join(names)}; got {value}.{hint}")
