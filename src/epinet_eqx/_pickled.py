"""An interpreter for the data part of Python's pickle format: nothing in a file is imported, called or run.

A pickle is a program for a stack machine. This machine knows the instructions that build numbers, strings and
containers. A name in the file is looked up in a vocabulary of our own, and anything else ends the reading. Time and
memory are bounded by the size of the file: keys are strings or numbers (hashing nested tuples takes exponential time
and overflows the C stack), and what instructions produce out of memoized parts is charged to a budget.
"""

import abc
import io
import os
import pathlib
import pickletools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ._files import StrPath

# The largest intended file, a split of CIFAR-100, has 250,000 instructions.
_MAX_INSTRUCTIONS = 2**19
_INTEGERS = ("BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG")
_STRINGS = ("BINSTRING", "SHORT_BINSTRING", "STRING", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE")
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
_PUSHED = {*_INTEGERS, *_STRINGS, *_BYTES, "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NO_EFFECT = ("PROTO", "FRAME")


class Name(NamedTuple):
    """A global name in a pickle, and our function that is called in its place."""

    text: str
    make: Callable[..., Any] | None = None


class AbstractBuildable(abc.ABC):
    """An object of a file that gets its content later, by `build`."""

    @abc.abstractmethod
    def build(self, state: Any) -> None:
        """Take the content; raise ValueError if it is not of the expected form."""


def as_bytes(value: Any) -> bytes:
    """Return a Python 2 string, which is read as Latin-1, as its bytes."""
    if isinstance(value, str):
        return value.encode("latin-1")
    if isinstance(value, bytes):
        return value
    raise ValueError(f"a {type(value).__name__} where bytes belong")


class _Machine:
    """The stack machine, for one pickle."""

    def __init__(self, names: Mapping[str, Callable[..., Any] | None], persistent: Callable[[Any], Any] | None):
        """Initialize with a vocabulary and the replacements of objects that are stored elsewhere."""
        self.names = names
        self.persistent = persistent
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[Any, Any] = {}

    def _pop_to_mark(self) -> list[Any]:
        """Take everything since the last mark off the stack."""
        items, self.stack = self.stack, self.outer.pop()
        return items

    def _name(self, text: str) -> Name:
        """Return a name of the vocabulary."""
        if text not in self.names:
            raise ValueError(f"the name {text!r:.80}")
        return Name(text, self.names[text])

    def _set_items(self, items: list[Any]) -> None:
        """Store pairs in the dictionary on top of the stack."""
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | bytes | int | float):
                raise ValueError(f"a key of type {type(key).__name__}")
            _require(self.stack[-1], dict)[key] = value

    def run(self, stream: io.BytesIO) -> Any:
        """Return the value that the stream describes; the stream is left behind it."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= _MAX_INSTRUCTIONS:
                raise ValueError(f"more than {_MAX_INSTRUCTIONS} instructions")
            stack = self.stack
            match opcode.name:
                case "STOP":
                    return stack.pop()
                case "BINPUT" | "LONG_BINPUT" | "PUT":
                    self.memo[argument] = stack[-1]
                case "MEMOIZE":
                    self.memo[len(self.memo)] = stack[-1]
                case "BINGET" | "LONG_BINGET" | "GET":
                    stack.append(self.memo[argument])
                case name if name in _PUSHED:
                    stack.append(argument)
                case name if name in _CONSTANTS:
                    stack.append(_CONSTANTS[name])
                case name if name in _NO_EFFECT:
                    pass
                case "MARK":
                    self.outer.append(stack)
                    self.stack = []
                case "EMPTY_DICT":
                    stack.append({})
                case "EMPTY_LIST":
                    stack.append([])
                case "EMPTY_TUPLE":
                    stack.append(())
                case "TUPLE":
                    items = self._pop_to_mark()
                    self.stack.append(tuple(items))
                case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                    size = int(name[-1])
                    if len(stack) < size:
                        raise ValueError("a tuple of nothing")
                    stack[-size:] = [tuple(stack[-size:])]
                case "APPEND":
                    value = stack.pop()
                    _require(stack[-1], list).append(value)
                case "APPENDS":
                    items = self._pop_to_mark()
                    _require(self.stack[-1], list).extend(items)
                case "SETITEM":
                    value, key = stack.pop(), stack.pop()
                    self._set_items([key, value])
                case "SETITEMS":
                    self._set_items(self._pop_to_mark())
                case "GLOBAL":
                    stack.append(self._name(str(argument)))
                case "STACK_GLOBAL":
                    member, module = _require(stack.pop(), str), _require(stack.pop(), str)
                    stack.append(self._name(f"{module} {member}"))
                case "BINPERSID" if self.persistent is not None:
                    stack.append(self.persistent(stack.pop()))
                case "REDUCE":
                    arguments, called = _require(stack.pop(), tuple), _require(stack.pop(), Name)
                    if called.make is None:
                        raise ValueError(f"a call of {called.text}")
                    stack.append(called.make(*arguments))
                case "BUILD":
                    state = stack.pop()
                    # The state of an `OrderedDict` is attributes, such as torch's `_metadata`.
                    if not isinstance(stack[-1], dict):
                        _require(stack[-1], AbstractBuildable).build(state)
                case name:
                    raise ValueError(f"the instruction {name}")
        raise ValueError("no end")


def _require(value: Any, kind: type) -> Any:
    """Return a value, which must be of this type."""
    if not isinstance(value, kind):
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def read_pickle(
    stream: io.BytesIO,
    names: Mapping[str, Callable[..., Any] | None],
    *,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the value of the pickle at the current position of a stream, which is moved behind it.

    Args:
        stream: a buffer in memory (`BytesIO`): a file would allocate whatever length a string claims to have.
        names: the replacement of each allowed name, by "module name"; None for a name that cannot be called.
        persistent: returns the replacement of an object that the file refers to and stores elsewhere.

    Raises:
        ValueError: anything else was found; the message is a noun phrase that names it.
    """
    try:
        return _Machine(names, persistent).run(stream)
    # `pickletools` warns about escapes in strings, which may be an error.
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError, MemoryError, Warning) as error:
        raise ValueError(f"a damaged pickle ({type(error).__name__})") from None


class _DType(AbstractBuildable):
    """The element type of an array."""

    def __init__(self, code: str):
        """Initialize with numpy's code, without byte order."""
        self.code = code

    def build(self, state: Any) -> None:
        """Accept little-endian numbers: the state is a version, the byte order, and three parts for other types."""
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", "|", b"<", b"|") or any(state[2:5]):
            raise ValueError("an array that is not of little-endian numbers")


class _Array(AbstractBuildable):
    """An array whose shape and content follow."""

    def __init__(self, charge: Callable[[int], None]):
        """Initialize without content."""
        self._charge = charge
        self.array: np.ndarray | None = None

    def build(self, state: Any) -> None:
        """Take shape, type and content: plain bytes and integers only."""
        match state:
            case (_, tuple() as shape, _DType() as dtype, bool() | int() as fortran, bytes() | str() as content):
                pass
            case _:
                raise ValueError("an array that is not of plain numbers")
        if not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 32:
            raise ValueError("an array of impossible shape")
        self._charge(len(content))
        flat = np.frombuffer(as_bytes(content), dtype=f"<{dtype.code}")
        self.array = flat.reshape(shape, order="F" if fortran else "C")


_CODES = ("u1", "i4", "i8", "f4", "f8")


def _numpy_names(limit: int) -> dict[str, Callable[..., Any] | None]:
    """Return the vocabulary of pickled numpy arrays, limited to `limit` bytes in total."""
    left = limit

    def charge(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            raise ValueError("more content than the file can have")

    def encode(text: Any, encoding: Any) -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise ValueError("a string in another encoding")
        charge(len(text))
        return _require(text, str).encode("latin-1")

    def reconstruct(kind: Any, *_: Any) -> _Array:
        if _require(kind, Name).text != "numpy ndarray":
            raise ValueError(f"an array of kind {kind.text}")
        return _Array(charge)

    def dtype(code: Any, *_: Any) -> _DType:
        if as_bytes(code).decode("latin-1") not in _CODES:
            raise ValueError("an array that is not of plain numbers")
        return _DType(as_bytes(code).decode("latin-1"))

    def empty(*arguments: Any) -> bytes:
        if arguments:
            raise ValueError("a call of bytes")
        return b""

    return {
        # Python 3 writes empty bytes so for Python 2.
        "__builtin__ bytes": empty,
        "numpy.core.multiarray _reconstruct": reconstruct,
        # numpy 2 renamed the module.
        "numpy._core.multiarray _reconstruct": reconstruct,
        "numpy ndarray": None,
        "numpy dtype": dtype,
        "_codecs encode": encode,
    }


def _plain(value: Any, *, nested: bool = False) -> Any:
    """Return an entry of a dictionary, with arrays for their descriptions; lists are not nested."""
    if isinstance(value, _Array) and value.array is not None:
        return value.array
    if isinstance(value, list | tuple) and not nested:
        return [_plain(item, nested=True) for item in value]
    if isinstance(value, str | bytes | int | float):
        return value
    raise ValueError(f"a {type(value).__name__.removeprefix('_')}")


def read_pickled_arrays(path: StrPath) -> dict[str, Any]:
    """Return the dictionary of a pickle: arrays, numbers and strings, and lists of them.

    Files written by Python 2, such as CIFAR's "python version", are read as well.

    Raises:
        ValueError: the file holds anything else, or is damaged; nothing of it was run.
    """
    content = pathlib.Path(path).read_bytes()
    try:
        # Each byte is used twice at most: as a string, and as its Latin-1 bytes.
        value = _require(read_pickle(io.BytesIO(content), _numpy_names(4 * len(content))), dict)
        return {as_bytes(key).decode(): _plain(entry) for key, entry in value.items()}
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)!r} must be a pickled dictionary of plain arrays; it holds {error}, and was not loaded."
        ) from None
