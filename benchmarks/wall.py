"""The wall-clock gate: every program of a change against the same program of its merge base, in turns."""

import collections
import contextlib
import pathlib
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._outcome import Outcome, table
from ._sides import ROOT, Worker, extract, merge_base
from .programs import ENTRY_POINTS, PROGRAMS

WARNING, FAILURE = 1.15, 1.5
ROUNDS, MAX_ROUNDS = 12, 36
_RESAMPLES = 1000


class Comparison(NamedTuple):
    """How much longer a program takes: the ratio of the shortest times, and its bootstrap interval."""

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What it means; a ratio that a few lucky rounds of the other side could explain does not fail."""
        if self.ratio >= FAILURE and self.low >= WARNING:
            return "FAIL"
        return "warn" if self.ratio >= WARNING else "ok"


def compare_times(change: Sequence[float], base: Sequence[float]) -> Comparison:
    """Return the ratio of minima of two series that were measured in turns, and its 95 % interval over rounds."""
    pairs = np.array([change, base])
    rounds = np.random.default_rng(0).integers(0, pairs.shape[1], (_RESAMPLES, pairs.shape[1]))
    minima = pairs[:, rounds].min(axis=2)
    low, high = np.quantile(minima[0] / minima[1], [0.025, 0.975])
    return Comparison(float(pairs[0].min() / pairs[1].min()), float(low), float(high))


def _both(workers: Sequence[Worker], question: str, *args: object) -> list[dict]:
    """Ask both sides in parallel, for untimed work."""
    for worker in workers:
        worker.ask(question, *args)
    return [worker.answer() for worker in workers]


def _prepare(workers: Sequence[Worker], name: str) -> int | str:
    """Get a program ready on both sides; return how many calls make a measurement, or why there is none."""
    prints = _both(workers, "fingerprint", name)
    if "error" in prints[0]:
        raise RuntimeError(f"{name!r} must run on the change; got {prints[0]['error']}")
    if "error" in prints[1]:
        return "not in the base"
    if prints[0]["answer"] is not None and prints[0] == prints[1]:
        return "unchanged"
    prepared = _both(workers, "prepare", name)
    if errors := [answer["error"] for answer in prepared if "error" in answer]:
        raise RuntimeError(f"{name!r} must run on both sides; got {errors[0]}")
    return max(answer["answer"] for answer in prepared)


def _time(workers: Sequence[Worker], calls: dict[str, int]) -> dict[str, Comparison]:
    """Compare programs in rounds over all of them, so that a busy minute hits only a few rounds of each.

    What looks slower after some rounds is measured for longer; in every other round the base goes first.
    """
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in calls}
    found: dict[str, Comparison] = {}
    for number in range(MAX_ROUNDS):
        for name in calls:
            if number >= ROUNDS and found[name].verdict == "ok":
                continue
            for side in (0, 1) if number % 2 else (1, 0):
                workers[side].ask("run", name, calls[name])
                times[name][side].append(workers[side].answer()["answer"])
            found[name] = compare_times(*times[name])
    return found


def time_sides(change: pathlib.Path, base: pathlib.Path, names: Sequence[str]) -> dict[str, Comparison | str]:
    """Return for each program a comparison of two source trees, or why there is none.

    Programs that are the same before they are compiled are not timed.
    """
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(contextlib.closing(Worker(source))) for source in (change, base)]
        prepared = {name: _prepare(workers, name) for name in names}
        compared = _time(workers, {name: calls for name, calls in prepared.items() if isinstance(calls, int)})
    return {name: compared[name] if isinstance(calls, int) else calls for name, calls in prepared.items()}


def judge(found: dict[str, Comparison | str], *, label: str) -> Outcome:
    """Return the verdict on comparisons."""
    compared = {name: value for name, value in found.items() if isinstance(value, Comparison)}
    others = collections.Counter(value for value in found.values() if isinstance(value, str))
    counted = ", ".join(f"{count} {what}" for what, count in {"compared": len(compared), **others}.items())
    rows = [
        (name, f"{c.ratio:.2f}", f"{c.low:.2f} to {c.high:.2f}", c.verdict)
        for name, c in sorted(compared.items(), key=lambda item: -item[1].ratio)
    ]
    listed = "\n" + table(("program", "ratio", "95 % interval", "verdict"), rows) if rows else ""
    passed = all(c.verdict != "FAIL" for c in compared.values())
    return Outcome(passed, f"wall: time over that of {label}; of {len(found)} programs {counted}{listed}")


def main(*, base: str | None = None) -> Outcome:
    """Compare the working tree with the merge base."""
    commit = merge_base(base)
    with tempfile.TemporaryDirectory() as folder:
        source = extract(commit, pathlib.Path(folder))
        found = time_sides(ROOT / "src", source, [*PROGRAMS, *ENTRY_POINTS])
    return judge(found, label=commit[:10])
