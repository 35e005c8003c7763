"""The form of a program: a function, its arguments, and its model."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Program(NamedTuple):
    """A program that is measured.

    Attributes:
        function: a pure function of trees of arrays; or an entry point of the library, which compiles by itself.
        args: its arguments.
        model: the model, whose parameters are counted.
        trips: how often the body of its loop runs, which XLA counts once; 1 without a loop.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    model: Any
    trips: int = 1


# From a positive number, which is put where users sweep a scalar, to a program of the same shapes: the program of
# another number must not be traced again.
MakeProgram = Callable[[float], Program]
