"""The command line: `python -m reproduce list|run|draw|verify|restore`."""

import argparse
import functools as ft
import importlib.util
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if importlib.util.find_spec("epinet_eqx") is None:
    sys.exit(
        'The package `epinet_eqx` must be installed where this runs: `pip install -e ".[plot,data]"`, or use the '
        "Python of a nox session, such as .nox/reproduce_theory/bin/python."
    )

from tqdm import tqdm

from . import ledger, machines, results, runner
from .accepted import read_manifest
from .artifact import TIERS, Artifact
from .configs.image_paper import DATASETS, PRESETS, Variant
from .dry_run import DEFAULT_TFLOPS, dry_run, simulate_devices
from .errors import ReproduceError, UsageError, unknown
from .executors import EXECUTORS, open_executor
from .inputs import Inputs
from .page import write_page
from .paths import REFERENCE, Output
from .progress import Progress
from .record import Records
from .registry import select
from .restore import restore
from .verify import accept, same_verdicts, verify, write_accepted_ledger

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


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
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
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
    check.add_argument("--partial", action="store_true", help="accept the units there are, marked as a part of all")
    commands.add_parser(
        "restore", parents=[shared], help="make records of the accepted numbers, to draw or to go on from"
    )
    return parser


def _list(chosen: Sequence[Artifact], output: Output) -> int:
    """Print one line per artifact, cut off where the lines of a terminal end."""
    header = ("id", "session", "time", "hardware", "done", "title", "label in the paper")
    lines: list[tuple[str, ...]] = [header]
    records = Records(output)
    for entry in chosen:
        done = f"{len(records.of(entry))}/{len(records.jobs(entry))}"
        machine, time = entry.machine(output.tier), entry.time(output.tier)
        lines.append((entry.id, entry.session, time, machine, done, entry.title, entry.label))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(text)
        print(text if len(text) <= columns else f"{text[: columns - 1]}…")
    example = " ".join(["--only", chosen[0].id, "--tier", output.tier, *output.variant.options])
    print(f"\ntimes are for tier {output.tier}; units done are those in {output.folder}")
    print(f"to compute one: python -m reproduce run {example}")
    return 0


def _finish(entry: Artifact, records: Records, *, again: bool) -> None:
    """Collect and draw a complete artifact, and say where its figure is."""
    results.collect(entry, records)
    results.draw(entry, records.output, again=again)
    _say(f"{entry.id}: {records.output.figure(entry.id, 'pdf')}")


def _conclude(chosen: Sequence[Artifact], records: Records) -> int:
    """Judge artifacts that are collected. A claim that does not hold is a result, not a failure of the command."""
    output = records.output
    # The ledger on disk is of everything that is complete at this tier, whatever was asked for this time.
    settled = {entry.id: results.settle([entry], output) for entry in results.complete(records)}
    print(f"\n{ledger.as_text([line for entry in chosen for line in settled[entry.id]])}")
    results.write_ledger([line for lines in settled.values() for line in lines], output)
    print(f"ledger: {output.claims('md')}")
    print(f"page: {write_page(records, settled, REFERENCE)}")
    return 0


def _draw(chosen: Sequence[Artifact], output: Output) -> int:
    """Draw artifacts again, and judge them."""
    records = Records(output)
    for entry in chosen:
        _finish(entry, records, again=True)
    return _conclude(chosen, records)


def _draw_accepted(chosen: Sequence[Artifact], output: Output) -> int:
    """Draw the accepted pictures of artifacts again, and judge the accepted numbers of their tier again."""
    drawn = [picture for entry in chosen if (picture := results.draw_accepted(entry, output, REFERENCE))]
    if not drawn:
        print(f"No picture is accepted at tier {output.tier}.")
        return 0
    print("\n".join(map(str, drawn)))
    print(f"ledger: {write_accepted_ledger(output.tier, REFERENCE)}")
    return 0


def _verify(chosen: Sequence[Artifact], output: Output, arguments: argparse.Namespace) -> int:
    """Compare artifacts with their references; return 1 if one does not agree."""
    wrong = waiting = 0
    found: dict[str, str] = {}
    here: Mapping[str, Any] = {}
    manifest = read_manifest(REFERENCE)
    others: dict[str, None] = {}
    records = Records(output)
    for entry in chosen:
        if not records.is_complete(entry):
            waiting += 1
            print(f"{entry.id}: not computed, {len(records.of(entry))} of {len(records.jobs(entry))} units are there")
            continue
        results.collect(entry, records)
        comparison = verify(entry, output, REFERENCE)
        here = results.origin(entry, records)
        apart = machines.differences(here, manifest.get(f"{output.tier}/{entry.id}.csv", {}))
        others |= dict.fromkeys(apart)
        found[entry.id] = "apart" if comparison.differences else "tolerance" if comparison.largest else "digits"
        if comparison.differences:
            wrong += 1
            print(f"{entry.id}: does not agree\n  " + "\n  ".join(comparison.differences))
        elif comparison.largest == 0:
            print(f"{entry.id}: {comparison.num_rows} rows agree to the last digit")
        else:
            why = "" if apart else ", although nothing is known to differ between the machines"
            largest = f"largest deviation {comparison.largest:.2g} of what is allowed{why}"
            print(f"{entry.id}: {comparison.num_rows} rows agree within their tolerances ({largest})")
    compared = len(chosen) - waiting
    print(f"{compared - wrong} of {compared} artifacts agree with the reference at tier {output.tier}")
    if others:
        print("this machine is not the one of the reference, so only tolerances can be asked for:")
        print("\n".join(f"  {words}" for words in others))
    if arguments.record and found:
        counts = [same_verdicts(entry, output, REFERENCE) for entry in chosen if entry.id in found]
        verdicts = [sum(count) for count in zip(*counts, strict=True)]
        noted = {"tier": output.tier, "session": arguments.session or "all", "verdicts": verdicts, "artifacts": found}
        print(f"noted: {machines.confirm(REFERENCE, here, noted)}")
    if waiting:
        print(f"{waiting} are not computed: `{_command('run', arguments)}` computes them")
    return int(wrong > 0 or waiting > 0)


def _accept(chosen: Sequence[Artifact], output: Output, *, partial: bool) -> int:
    """Make the fresh CSVs of artifacts the reference."""
    records = Records(output)
    for entry in chosen:
        results.collect(entry, records, partial=partial)
    accept(chosen, output, REFERENCE, {entry.id: results.origin(entry, records) for entry in chosen})
    print(f"{len(chosen)} artifacts are the reference at tier {output.tier} now: {REFERENCE / output.tier}")
    return 0


def _restore(chosen: Sequence[Artifact], output: Output) -> int:
    """Make records of the accepted numbers of artifacts."""
    records = Records(output)
    for entry in chosen:
        restored = restore(entry, records, REFERENCE)
        print(f"{entry.id}: {restored} records restored")
    return 0


def _command(name: str, arguments: argparse.Namespace) -> str:
    """Return a command with the options of this one, for instance one that continues it."""
    words = [f"python -m reproduce {name}", f"--tier {arguments.tier}", f"--out {arguments.out}"]
    words += [f"--only {name}" for name in arguments.only]
    words += [f"--session {arguments.session}"] if arguments.session else []
    words += Variant(dataset=arguments.dataset, preset=arguments.preset).options
    for name, default in (("data_dir", None), ("weights", None), ("accumulate", 1), ("loaders", 0), ("devices", None)):
        value = getattr(arguments, name, default)
        words += [f"--{name.replace('_', '-')} {value}"] if value != default else []
    return " ".join(words)


def _choose(arguments: argparse.Namespace) -> tuple[list[Artifact], Output]:
    """Return the artifacts and the output folder that a command names."""
    if arguments.tier not in TIERS:
        raise unknown("--tier", arguments.tier, TIERS)
    variant = Variant(dataset=arguments.dataset, preset=arguments.preset)
    only = [name for group in arguments.only for name in group.split(",")]
    chosen = select(only, arguments.session, tier=arguments.tier, variant=variant)
    if not chosen:
        raise UsageError(f"`--only` must name artifacts of the session {arguments.session}; got {', '.join(only)}.")
    if variant.name:
        others = [entry.id for entry in chosen if not entry.plan]
        if others:
            options = " and ".join(f"`{option}`" for option in variant.options)
            raise UsageError(f"{options} must go with image figures only; got {others[0]}.")
        for entry in chosen:
            entry.at_tier(arguments.tier, variant)
    return chosen, Output(root=arguments.out, tier=arguments.tier, variant=variant)


def _say(words: str) -> None:
    """Print a line above a progress bar, at once also where it goes to a file."""
    tqdm.write(words)
    sys.stdout.flush()


def _tell(words: str) -> None:
    """Print a line about the progress of a run, apart from its results."""
    tqdm.write(words, file=sys.stderr)
    sys.stderr.flush()


def _run(chosen: Sequence[Artifact], output: Output, arguments: argparse.Namespace) -> int:
    """Compute what is missing, or say what that would take."""
    for name, least in (("accumulate", 1), ("loaders", 0), ("devices", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UsageError(f"`--{name}` must be at least {least}; got {value}.")
    if arguments.devices is not None:
        simulate_devices(arguments.devices)
    inputs = Inputs(
        data_dir=arguments.data_dir,
        weights=arguments.weights,
        cache=output.cache,
        accumulate=arguments.accumulate,
        loaders=arguments.loaders,
    )
    if arguments.dry_run:
        if not 0 < arguments.tflops < float("inf"):
            raise UsageError(f"`--tflops` must be finite and above 0; got {arguments.tflops:g}.")
        dry_run(chosen, output, inputs=inputs, tflops=arguments.tflops, progress=not arguments.quiet, say=_say)
        return 0
    workers = arguments.workers
    if workers > 1 and output.tier == "paper" and any(entry.plan for entry in chosen):
        tqdm.write("Image figures of tier paper have all devices to themselves: one process computes them.")
        workers = 1
    records = Records(output)
    with open_executor(arguments.executor, workers=workers, scheduler=arguments.scheduler) as executor:
        runner.run(
            chosen,
            records,
            inputs=inputs,
            force=arguments.force,
            executor=executor,
            progress=Progress(_tell, workers=workers, show=not arguments.quiet),
            finish=ft.partial(_finish, records=records, again=arguments.force),
        )
    return _conclude(chosen, records)


def _dispatch(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    chosen, output = _choose(arguments)
    if arguments.command == "list":
        return _list(chosen, output)
    if arguments.command in ("verify", "restore"):
        if output.variant.name:
            options = " ".join(output.variant.options)
            raise UsageError(f"`{arguments.command}` is for the default data, which has references; got {options}.")
        if arguments.command == "restore":
            return _restore(chosen, output)
        if arguments.accept:
            return _accept(chosen, output, partial=arguments.partial)
        return _verify(chosen, output, arguments)
    if arguments.command == "run":
        return _run(chosen, output, arguments)
    return _draw_accepted(chosen, output) if arguments.accepted else _draw(chosen, output)


def _about_folder(error: Exception, arguments: argparse.Namespace) -> str | None:
    """Return the option of the folder that an error speaks of, or None."""
    for name in ("data_dir", "weights"):
        folder = getattr(arguments, name, None)
        if folder is not None and str(folder) in str(error):
            return f"--{name.replace('_', '-')}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return _dispatch(arguments)
    except (runner.InterruptedRunError, KeyboardInterrupt) as stop:
        done = str(stop) or "Stopped: what was finished is kept."
        print(f"\n{done} Continue with: {_command(arguments.command, arguments)}", file=sys.stderr)
        return 130
    except ReproduceError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except (OSError, ValueError) as error:
        # What readers of data say of a file is a sentence; in a folder of the user it is about that folder.
        if (option := _about_folder(error, arguments)) is None:
            raise
        print(f"`{option}` must hold what the artifact reads; {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    # Batch systems end a job by this signal: as after Ctrl-C, no process is left that computes for nobody.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
