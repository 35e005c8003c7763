"""The options of the command line, and a command with the options of another one."""

import argparse
from pathlib import Path

from .artifact import TIERS
from .configs.image_paper import DATASETS, PRESETS, Variant
from .dry_run import DEFAULT_TFLOPS
from .executors import EXECUTORS

_EPILOG = """examples:
  python -m reproduce list
  python -m reproduce run --session theory --tier smoke
  python -m reproduce run --only thm1 --only fig01
  python -m reproduce draw --only thm1
  python -m reproduce run --session testbed --workers 2
  python -m reproduce verify --session theory
  python -m reproduce run --session imagenet --tier paper --data-dir IMAGENET
  python -m reproduce run --session imagenet --tier paper --dry-run --devices 16
  python -m reproduce run --only fig10 --dataset fashion_mnist --data-dir FASHION_MNIST
  python -m reproduce restore --tier paper --only fig05 && python -m reproduce draw --tier paper --only fig05
  python -m reproduce.paper

Results go to OUT/TIER: records/ (one JSON per run), csv/ (one per artifact), figures/ (PDF and PNG), claims.md and
claims.csv. A run that has a valid record is not computed again, so a stopped command continues where it was.
A claim that does not hold is a result: the ledger says so, and the command still succeeds.
exit codes: 0 done; 1 something failed or does not agree; 2 the command was not understood; 130 stopped by Ctrl-C."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m reproduce",
        description="Regenerate the figures, tables and theorem checks of 'Epistemic Neural Networks'.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--tier", default="laptop", help=f"size of the runs: {', '.join(TIERS)} (default: laptop)")
    shared.add_argument(
        "--only", action="append", default=[], metavar="ID", help="only this artifact; may be repeated, or a,b,c"
    )
    shared.add_argument("--session", help="only the artifacts of this session, such as theory")
    shared.add_argument(
        "--dataset", default="", metavar="NAME", help=f"other data for image figures: {', '.join(DATASETS)}"
    )
    shared.add_argument(
        "--preset",
        default="paper",
        metavar="NAME",
        help=f"epinets of tier paper: {', '.join(PRESETS)} (default: paper)",
    )
    shared.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="output folder (default: out)")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "list", parents=[shared], help="show the artifacts, how long they take and how much of them is done"
    )
    run = commands.add_parser("run", parents=[shared], help="compute what is missing, draw it, print the ledger")
    run.add_argument("--force", action="store_true", help="compute again what has a record; needed after editing src/")
    run.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of a data set, for artifacts that read one")
    run.add_argument("--weights", type=Path, metavar="DIR", help="folder of trained networks, likewise")
    run.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that compute side by side (default: 1)"
    )
    run.add_argument(
        "--executor",
        default="local",
        help=f"where to compute: {', '.join(EXECUTORS)} (default: local); dask needs the extra of that name",
    )
    run.add_argument("--scheduler", metavar="ADDRESS", help="a running Dask scheduler; by default one is started here")
    run.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="parts that a large batch goes through in (default: 1)"
    )
    run.add_argument("--loaders", type=int, default=0, metavar="N", help="processes that decode images (default: 0)")
    run.add_argument("--devices", type=int, metavar="N", help="simulate so many devices on the CPU")
    run.add_argument(
        "--dry-run", action="store_true", help="train nothing: compile each step, say what the run would take"
    )
    run.add_argument(
        "--tflops",
        type=float,
        default=DEFAULT_TFLOPS,
        metavar="X",
        help=f"speed of a device that --dry-run reckons with, in TFLOP/s (default: {DEFAULT_TFLOPS:g})",
    )
    run.add_argument("--quiet", action="store_true", help="do not say how far the run is")
    drawing = commands.add_parser(
        "draw", parents=[shared], help="draw from the records there are, and print the ledger"
    )
    drawing.add_argument(
        "--accepted",
        action="store_true",
        help="draw and judge the accepted numbers again, as after a change of a figure or of a claim's words",
    )
    check = commands.add_parser("verify", parents=[shared], help="compare fresh CSVs with the accepted ones")
    check.add_argument("--accept", action="store_true", help="make the fresh CSVs the accepted ones")
    check.add_argument(
        "--record", action="store_true", help="note this machine, and what agreed, beside the accepted numbers"
    )
    check.add_argument(
        "--confirm",
        action="store_true",
        help="note that a run of one commit agrees with the accepted numbers; `restore` then takes them as its results",
    )
    check.add_argument("--partial", action="store_true", help="accept the units there are, marked as a part of all")
    commands.add_parser(
        "restore", parents=[shared], help="make records of the accepted numbers, to draw or to go on from"
    )
    return made


def command_of(name: str, arguments: argparse.Namespace) -> str:
    """Return a command with the options of this one, for instance one that continues it."""
    words = [f"python -m reproduce {name}", f"--tier {arguments.tier}", f"--out {arguments.out}"]
    words += [f"--only {name}" for name in arguments.only]
    words += [f"--session {arguments.session}"] if arguments.session else []
    words += Variant(dataset=arguments.dataset, preset=arguments.preset).options
    for name, default in (("data_dir", None), ("weights", None), ("accumulate", 1), ("loaders", 0), ("devices", None)):
        value = getattr(arguments, name, default)
        words += [f"--{name.replace('_', '-')} {value}"] if value != default else []
    return " ".join(words)
