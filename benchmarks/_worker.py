"""A process that holds the compiled programs of one source tree and runs them when told: a line of JSON each way."""

import hashlib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

# What counts as one measurement: as many calls as take so long.
_SECONDS = 0.02
_MAX_CALLS = 1000


class _Programs:
    """Answers to the parent's questions about programs, by name."""

    def __init__(self) -> None:
        self._ready: dict[str, Callable[[], Any]] = {}

    def fingerprint(self, name: str) -> str | None:
        """Return a checksum of a program before it is compiled; None for an entry point, which is many programs."""
        from ._counts import lower
        from .programs import PROGRAMS

        if name not in PROGRAMS:
            return None
        return hashlib.sha256(lower(PROGRAMS[name]).as_text().encode()).hexdigest()

    def prepare(self, name: str) -> int:
        """Compile and warm up a program; return how many calls make a measurement."""
        import equinox as eqx
        import jax

        from .programs import ENTRY_POINTS, PROGRAMS, build

        program = ENTRY_POINTS[name](1.0) if name in ENTRY_POINTS else build(PROGRAMS[name])
        function = program.function if name in ENTRY_POINTS else eqx.filter_jit(program.function)
        self._ready[name] = lambda: jax.block_until_ready(eqx.filter(function(*program.args), eqx.is_array))
        self.run(name, 2)
        return min(_MAX_CALLS, math.ceil(_SECONDS / self.run(name, 3)))

    def run(self, name: str, calls: int) -> float:
        """Return the seconds of a call, on average over some."""
        function = self._ready[name]
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls


def main(source: pathlib.Path) -> None:
    """Answer until the input ends."""
    import epinet_eqx

    found = pathlib.Path(epinet_eqx.__file__).resolve()
    if source.resolve() not in found.parents:
        raise SystemExit(f"`epinet_eqx` must be that of {source}; got {found}.")
    # Whatever the programs print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    programs = _Programs()
    for line in sys.stdin:
        question, *args = json.loads(line)
        try:
            answer = {"answer": getattr(programs, question)(*args)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
