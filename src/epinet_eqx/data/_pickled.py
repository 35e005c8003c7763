"""Arrays out of Python's serialization format, read as data: nothing in the file is looked up, called or run.

CIFAR's "python version" is in that format. The stream is a program for a stack machine; the machine here knows the
instructions that build lists, dictionaries, strings and numbers, and takes the few names that a numpy array is made
of as mere words. Anything else ends the reading.
"""

import os
import pathlib
import pickletools
from typing import Any, NamedTuple

import numpy as np

_MARK = object()
# The module was renamed by numpy 2; Python 2 and 3 write bytes in different ways.
_WORDS = {
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_INTEGERS = ("BININT", "BININT1", "BININT2", "LONG1", "INT")
_STRINGS = ("BINSTRING", "SHORT_BINSTRING", "STRING", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
_PUSHED = {*_INTEGERS, *_STRINGS, *_BYTES, "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NO_EFFECT = ("PROTO", "FRAME")


class _Word(NamedTuple):
    """A name of the file that stands for itself."""

    name: str


class _Type(NamedTuple):
    """The element type of an array."""

    code: str


class _Unfilled:
    """An array whose shape and content are still to come."""

    def __init__(self):
        """Initialize without content."""
        self.array: np.ndarray | None = None


def _as_bytes(value: Any) -> bytes:
    """Return a string of Python 2, which was read as Latin-1, as the bytes that it was."""
    return value if isinstance(value, bytes) else value.encode("latin-1")


def _call(word: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what a known word makes of its arguments."""
    match word, arguments:
        case _Word("reconstruct"), (_Word("ndarray"), _, _):
            return _Unfilled()
        case _Word("dtype"), (str() | bytes() as code, *_):
            return _Type(_as_bytes(code).decode())
        case _Word("encode"), (str() as text, "latin1" | "latin-1"):
            return text.encode("latin-1")
    raise ValueError(f"a call of {word!r}")


def _fill(target: Any, state: Any) -> None:
    """Give an array its shape and content; only plain bytes and integers are taken."""
    match target, state:
        case _Type(), tuple():
            return
        case _Unfilled(), (_, tuple() as shape, _Type("u1" | "i4" | "i8" as code), bool() | int() as fortran, content):
            flat = np.frombuffer(_as_bytes(content), dtype=f"<{code}")
            target.array = flat.reshape(shape, order="F" if fortran else "C")
            return
    raise ValueError(f"a state of {type(state).__name__} for {type(target).__name__}")


def _number(argument: Any) -> int:
    """Return an argument that is a number, in any of the ways in which numbers are written."""
    return int(argument)


def _since_mark(stack: list[Any]) -> list[Any]:
    """Take what was pushed since the last mark off the stack."""
    at = len(stack) - 1 - stack[::-1].index(_MARK)
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _run(stream: bytes) -> Any:
    """Return the value that the stream describes."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(stream):
        match opcode.name:
            case "STOP":
                return stack.pop()
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                memo[_number(argument)] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET" | "GET":
                stack.append(memo[_number(argument)])
            case name if name in _PUSHED:
                stack.append(argument)
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case name if name in _NO_EFFECT:
                pass
            case "MARK":
                stack.append(_MARK)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE":
                stack.append(tuple(_since_mark(stack)))
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "APPEND":
                value = stack.pop()
                stack[-1].append(value)
            case "APPENDS":
                values = _since_mark(stack)
                stack[-1].extend(values)
            case "SETITEM":
                key, value = stack[-2:]
                stack[-2:] = []
                stack[-1][key] = value
            case "SETITEMS":
                items = _since_mark(stack)
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "GLOBAL" if argument in _WORDS:
                stack.append(_Word(_WORDS[argument]))
            case "STACK_GLOBAL" if " ".join(map(str, stack[-2:])) in _WORDS:
                stack[-2:] = [_Word(_WORDS[" ".join(stack[-2:])])]
            case "REDUCE":
                arguments = stack.pop()
                stack[-1] = _call(stack[-1], arguments)
            case "BUILD":
                state = stack.pop()
                _fill(stack[-1], state)
            case name:
                raise ValueError(f"the instruction {name}{'' if argument is None else f' {argument!r:.80}'}")
    raise ValueError("no end")


def _entry(value: Any) -> Any:
    """Return an entry of the dictionary: an array that was filled, a list, a string or a number."""
    if isinstance(value, _Unfilled) and value.array is not None:
        return value.array
    if isinstance(value, list | str | bytes | int | float):
        return value
    raise ValueError(f"a {type(value).__name__}")


def read_pickled_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the dictionary that a file of CIFAR's python version holds, with arrays, lists, strings and numbers.

    Raises:
        ValueError: the file asks for anything else, or is damaged; nothing of it was run.
    """
    try:
        value = _run(pathlib.Path(path).read_bytes())
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__}")
        return {_as_bytes(key).decode(): _entry(entry) for key, entry in value.items()}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} must be a pickled dictionary of plain arrays; it holds {error}, and was not loaded."
        ) from None
