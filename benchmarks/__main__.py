"""Run gates and benchmarks: `python -m benchmarks [NAME ...]`; fails if one of them does."""

import argparse
import subprocess
import sys
from collections.abc import Iterator

from . import _promises
from ._outcome import Outcome

GATES = ("cost", "quality", "wall")


def run(name: str, *, update: bool, base: str | None) -> Iterator[Outcome]:
    """Run a gate or a benchmark; the wall-clock gate includes the ratios that are promised."""
    if name == "cost":
        from . import cost

        yield cost.main(update=update)
    elif name == "quality":
        from . import quality

        yield quality.main(update=update)
    elif name == "wall":
        from . import wall

        yield wall.main(base=base)
        for promised in _promises.PROMISED:
            yield from _promises.measure(promised)
    else:
        yield from _promises.measure(name)


def run_at_once(names: list[str], options: list[str]) -> bool:
    """Run untimed gates in parallel, each in its own process; return whether all passed."""
    processes = [subprocess.Popen([sys.executable, "-m", "benchmarks", name, *options]) for name in names]
    return not any([process.wait() for process in processes])


def main() -> int:
    """Print the verdicts and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Gates, and ratios within one run.")
    known = (*GATES, *_promises.NAMES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(known)}; the gates by default")
    parser.add_argument("--update", action="store_true", help="rewrite the baselines of cost and quality")
    parser.add_argument("--base", metavar="REVISION", help="the branch whose merge base `wall` compares with")
    args = parser.parse_args()
    names = list(dict.fromkeys(args.names)) or [name for name in GATES if not args.update or name != "wall"]
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"`names` must be among {', '.join(known)}; got {', '.join(unknown)}.")
    if args.update and not {"cost", "quality"}.issuperset(names):
        parser.error(f"`--update` is for cost and quality, which have baselines; got {', '.join(names)}.")
    passed = True
    if {"cost", "quality"}.issubset(names):
        passed = run_at_once(["cost", "quality"], ["--update"] if args.update else [])
        names = [name for name in names if name not in ("cost", "quality")]
    for name in names:
        for outcome in run(name, update=args.update, base=args.base):
            passed = passed and outcome.passed
            print(outcome, flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
