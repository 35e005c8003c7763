"""Write the report: `python -m benchmarks.report [--out FOLDER]`; a Markdown file, a picture, and a line of history."""

import argparse
import datetime
import json
import pathlib
import sys
import time
from typing import Any

from reproduce.provenance import provenance

from . import _picture
from ._compiled import compile_program
from ._measure import matmul_rate, minimum_times, temporary_bytes
from ._outcome import table
from ._scaling import Curve, measure_curves
from .programs import PROGRAMS, build

_ROUNDS = 20


def measure_programs() -> dict[str, dict[str, float]]:
    """Return time, operations and temporary memory of each program."""
    found = {}
    for name, make in PROGRAMS.items():
        program = compile_program(build(make))
        (seconds,) = minimum_times([program.call], rounds=_ROUNDS)
        memory = float(temporary_bytes(program.compiled))
        found[name] = {"seconds": seconds, "operations": program.operations, "memory": memory}
    return found


def make_entry(
    limit: float, programs: dict[str, dict[str, float]], curves: list[Curve], *, seconds: float
) -> dict[str, Any]:
    """Return the line of history of a report."""
    scaling = {
        curve.what: {**curve._asdict(), "time_exponent": curve.time_exponent, "memory_exponent": curve.memory_exponent}
        for curve in curves
    }
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "when": now,
        "provenance": provenance(seconds=seconds),
        "limit": limit,
        "programs": programs,
        "scaling": scaling,
    }


def markdown(entry: dict[str, Any]) -> str:
    """Return the report on an entry of the history as text."""
    limit, made = entry["limit"], entry["provenance"]
    programs = [
        (
            name,
            f"{1e3 * program['seconds']:.3g}",
            f"{program['operations'] / 1e6:.3g}",
            f"{program['operations'] / program['seconds'] / 1e9:.3g}",
            f"{100 * program['operations'] / program['seconds'] / limit:.2g}",
            f"{program['memory'] / 1024:,.0f}",
        )
        for name, program in entry["programs"].items()
    ]
    scaling = [
        (
            what,
            f"{min(curve['sizes']):,} to {max(curve['sizes']):,}",
            f"{curve['time_exponent']:.2f}",
            f"{curve['memory_exponent']:.2f}",
        )
        for what, curve in entry["scaling"].items()
    ]
    return f"""# Benchmark report

{entry["when"]}, commit {made["commit"]}, jax {made["versions"]["jax"]} on {made["backend"]} with {made["cpus"]} cores.
A large product of matrices runs at {limit / 1e9:.1f} GFLOP/s here: the limit.

![Shares of the limit, scaling curves and trend](report.svg)

## Programs

Shortest of {_ROUNDS} calls. Operations are XLA's count, those of a loop's body as often as it runs.

{table(("program", "ms", "MFLOP", "GFLOP/s", "% of limit", "temporary KiB"), programs)}

## Scaling

The power of the size that time and temporary memory grow with, fitted to all sizes: of a streamed joint loss, and for
particles of a training step.

{table(("size", "range", "time", "memory"), scaling)}
"""


def write(out: pathlib.Path) -> None:
    """Measure, and write `report.md`, `report.svg` and one more line of `history.jsonl` into a folder."""
    start = time.perf_counter()
    limit = matmul_rate()
    programs, curves = measure_programs(), measure_curves()
    # The machine may have become busy or idle meanwhile: the better of both is its limit.
    limit = max(limit, matmul_rate())
    entry = make_entry(limit, programs, curves, seconds=time.perf_counter() - start)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "history.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    _picture.save(_picture.draw(history, curves), out / "report.svg")
    (out / "report.md").write_text(markdown(entry))


def main() -> int:
    """Write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="Times, rates and scaling.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/bench"), help="default: out/bench")
    write(parser.parse_args().out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
