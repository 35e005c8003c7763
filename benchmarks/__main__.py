"""Run the benchmarks: `python -m benchmarks [NAME ...]`; fails if a ratio is on the wrong side of what is asked."""

import argparse
import importlib
import pathlib
import sys

NAMES = sorted(path.stem.removeprefix("bench_") for path in pathlib.Path(__file__).parent.glob("bench_*.py"))


def main() -> int:
    """Print a line per ratio and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ratios measured within one run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones, all by default: {', '.join(NAMES)}")
    names = parser.parse_args().names or NAMES
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"`names` must be among {', '.join(NAMES)}; got {', '.join(unknown)}.")
    failed = 0
    for name in names:
        for ratio in importlib.import_module(f"benchmarks.bench_{name}").main():
            failed += not ratio.holds
            verdict = "ok  " if ratio.holds else "FAIL"
            side = "at most" if ratio.at_most else "at least"
            print(f"{verdict} {ratio.name}: {ratio.measured:.3g} (asked: {side} {ratio.asked:g})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
