"""The command line: `python -m reproduce list|run|draw|verify|restore`."""

import argparse
import functools as ft
import importlib.util
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import date

if importlib.util.find_spec("epinet_eqx") is None:
    sys.exit(
        'The package `epinet_eqx` must be installed where this runs: `pip install -e ".[plot,data]"`, or use the '
        "Python of a nox session, such as .nox/reproduce_theory/bin/python."
    )

from tqdm import tqdm

from . import ledger, machines, options, results, runner
from .accept import accept, write_accepted_ledger
from .accepted import read_manifest
from .artifact import TIERS, Artifact
from .configs.image_paper import Variant
from .dry_run import dry_run, simulate_devices
from .errors import ReproduceError, UsageError, unknown
from .executors import open_executor
from .inputs import Inputs
from .page import write_page
from .paths import REFERENCE, Output
from .progress import Progress
from .record import Records
from .registry import select
from .restore import restore
from .verify import Comparison, agreement, confirm, verify


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
    """Compare artifacts with their references; return 1 if one does not agree or cannot be confirmed."""
    records, manifest = Records(output), read_manifest(REFERENCE)
    there = [entry for entry in chosen if records.is_complete(entry)]
    compared: dict[str, Comparison] = {}
    others: dict[str, None] = {}
    for entry in chosen:
        if entry not in there:
            print(f"{entry.id}: not computed, {len(records.of(entry))} of {len(records.jobs(entry))} units are there")
            continue
        results.collect(entry, records)
        origin = manifest.get(f"{output.tier}/{entry.id}.csv", {})
        apart = machines.differences(results.origin(entry, records), origin)
        others |= dict.fromkeys(apart)
        compared[entry.id] = verify(entry, output, REFERENCE)
        print(compared[entry.id].told(same_machine=not apart))
    agree = [entry for entry in there if not compared[entry.id].differences]
    print(f"{len(agree)} of {len(there)} artifacts agree with the reference at tier {output.tier}")
    if others:
        print("this machine is not the one of the reference, so only tolerances can be asked for:")
        print("\n".join(f"  {words}" for words in others))
    if arguments.record and there:
        here = results.origin(there[-1], records)
        found = {entry.id: agreement(entry, compared[entry.id], output, REFERENCE) for entry in there}
        print(f"noted: {machines.confirm(REFERENCE, here, output.tier, found)}")
    confirmed = _confirm(agree, records, compared) if arguments.confirm else agree
    if len(there) < len(chosen):
        computes = options.command_of("run", arguments)
        print(f"{len(chosen) - len(there)} are not computed: `{computes}` computes them")
    return int(len(confirmed) < len(chosen))


def _confirm(agree: Sequence[Artifact], records: Records, compared: Mapping[str, Comparison]) -> list[Artifact]:
    """Note that artifacts agree with their references; return those of which it can be said."""
    confirmed = []
    for entry in agree:
        try:
            noted = confirm(entry, records, REFERENCE, largest=compared[entry.id].largest, date=str(date.today()))
        except ReproduceError as error:
            print(error)
            continue
        confirmed.append(entry)
        print(f"{entry.id}: confirmed for the code of commit {noted['commit'][:12]}")
    return confirmed


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


def _by_default(chosen: list[Artifact], arguments: argparse.Namespace, variant: Variant) -> list[Artifact]:
    """Return the artifacts that are meant where none is named."""
    if variant.name:
        # The rest of a session has no other data; one that has nothing else is refused below.
        return [entry for entry in chosen if entry.plan] or chosen
    if arguments.command == "run":
        for entry in chosen:
            if arguments.tier in entry.on_request:
                _say(f"{entry.id} is left out, since it would show {entry.data}; `--only {entry.id}` computes it.")
    return [entry for entry in chosen if arguments.tier not in entry.on_request]


def _choose(arguments: argparse.Namespace) -> tuple[list[Artifact], Output]:
    """Return the artifacts and the output folder that a command names."""
    if arguments.tier not in TIERS:
        raise unknown("--tier", arguments.tier, TIERS)
    variant = Variant(dataset=arguments.dataset, preset=arguments.preset)
    only = [name for group in arguments.only for name in group.split(",")]
    chosen = select(only, arguments.session, tier=arguments.tier, variant=variant)
    if not chosen:
        raise UsageError(f"`--only` must name artifacts of the session {arguments.session}; got {', '.join(only)}.")
    if not only and arguments.command != "list":
        chosen = _by_default(chosen, arguments, variant)
    if variant.name:
        others = [entry.id for entry in chosen if not entry.plan]
        if others:
            given = " and ".join(f"`{option}`" for option in variant.options)
            raise UsageError(f"{given} must go with image figures only; got {others[0]}.")
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
            given = " ".join(output.variant.options)
            raise UsageError(f"`{arguments.command}` is for the default data, which has references; got {given}.")
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
    arguments = options.parser().parse_args(argv)
    try:
        return _dispatch(arguments)
    except (runner.InterruptedRunError, KeyboardInterrupt) as stop:
        done = str(stop) or "Stopped: what was finished is kept."
        print(f"\n{done} Continue with: {options.command_of(arguments.command, arguments)}", file=sys.stderr)
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
