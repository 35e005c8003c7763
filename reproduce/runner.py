"""Runs the units of artifacts, keeps their records, and turns complete artifacts into CSV, figures and ledger."""

import functools as ft
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from . import aggregate, ledger, record
from .artifact import Artifact
from .claims import LedgerLine, judge
from .errors import ReproduceError
from .executors import Executor
from .files import write_atomically
from .inputs import Inputs
from .memory import forget_programs, told
from .paths import Output
from .provenance import package_version, provenance
from .record import Record
from .registry import REGISTRY, select
from .style import pictures, style_context

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one artifact: its configuration, the hash that its record must have, and what was found on disk."""

    artifact: str
    unit: str
    config: Any
    hash: str
    found: record.Lookup


class InterruptedRunError(ReproduceError):
    """The run was stopped from the keyboard; what is done is kept."""

    def __init__(self, done: int, total: int, words: str = ""):
        """Initialize with how many units are done, and what else is known of the one that was not."""
        super().__init__(f"Stopped: {done} of {total} units are done and kept." + (f" {words}" if words else ""))


def jobs(artifact: Artifact, output: Output) -> list[Job]:
    """Return the runs of an artifact at a tier, and which of them have a valid record."""
    folder = artifact.folder
    version = package_version()
    found = []
    for unit, config in artifact.at_tier(output.tier, output.variant).units().items():
        wanted = record.config_hash(
            artifact=folder,
            unit=unit,
            config=config,
            seed=artifact.seed,
            version=version,
            source=artifact.source,
        )
        lookup = record.look_up(output.record(folder, unit), wanted=wanted, version=version)
        found.append(Job(artifact=artifact.id, unit=unit, config=config, hash=wanted, found=lookup))
    return found


def _digest(name: str) -> str:
    """Return what networks that are kept belong to, beside their own configuration: code, version and seed."""
    artifact = REGISTRY[name]
    parts = (artifact.source, package_version().encode(), str(artifact.seed).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def networks_in(name: str, inputs: Inputs, output: Output) -> Inputs:
    """Return the inputs of an artifact, with the place where its networks are kept."""
    return replace(inputs, networks=output.networks(REGISTRY[name].folder, _digest(name)))


def compute(group: Sequence[Job], *, inputs: Inputs, output: Output) -> Iterator[Record]:
    """Run the units of one group and yield their records; a function of its arguments, so that any process can do it.

    An experiment that yields its results one by one has each of them recorded as soon as it is there.
    """
    import jax
    import jax.random as jr

    from epinet_eqx import named_keys

    if output.tier == "smoke":
        # Compiling is most of the time of runs this small.
        jax.config.update("jax_disable_most_optimizations", True)
    forget_programs()
    first = group[0]
    artifact = REGISTRY[first.artifact]
    key = jr.key(artifact.seed)
    run = artifact.load()
    if artifact.reads_inputs:
        run = ft.partial(run, inputs=networks_in(first.artifact, inputs, output))
    start = time.perf_counter()
    if artifact.groups:
        results = run([job.config for job in group], key=key)
    else:
        (own_key,) = named_keys(key, first.unit)
        results = [run(first.config, key=own_key)]
    if isinstance(results, list):
        # All came at once: each took its share of the time.
        start = time.perf_counter() - (time.perf_counter() - start) / len(group)
    for job, rows in zip(group, told(results), strict=True):
        seconds = time.perf_counter() - start
        yield Record(
            artifact=artifact.folder,
            unit=job.unit,
            hash=job.hash,
            version=package_version(),
            config=asdict(job.config),
            seed=artifact.seed,
            rows=rows,
            provenance=provenance(seconds=seconds),
        )
        if not isinstance(results, list):
            start = time.perf_counter()


def grouped(work: Sequence[Job]) -> list[list[Job]]:
    """Return jobs as they are computed: alone, or in groups, which artifacts that share records share, too."""
    by_run: dict[tuple[str, str], dict[str, Job]] = {}
    for job in work:
        artifact = REGISTRY[job.artifact]
        by_run.setdefault((artifact.folder, artifact.run), {})[job.unit] = job
    found = []
    for own in by_run.values():
        artifact = REGISTRY[next(iter(own.values())).artifact]
        if artifact.groups:
            split = artifact.load(artifact.groups)({unit: job.config for unit, job in own.items()})
            found += [[own[unit] for unit in group] for group in split]
        else:
            found += [[job] for job in own.values()]
    return found


def run(
    chosen: Sequence[Artifact],
    output: Output,
    *,
    inputs: Inputs,
    force: bool,
    progress: bool,
    say: Say,
    executor: Executor,
) -> None:
    """Compute what is missing; `force` computes all of it again.

    Args:
        chosen: the artifacts.
        output: where the records are.
        inputs: the folders that experiments read.
        force: whether to compute again what has a record.
        progress: whether to show a progress bar.
        say: prints a sentence.
        executor: where the groups are computed. Records are written here, each as soon as it is there.
    """
    # What two artifacts share is one record, and computed once.
    if force:
        for entry in chosen:
            shutil.rmtree(output.networks(entry.folder, _digest(entry.id)), ignore_errors=True)
    work = {(entry.folder, job.unit): job for entry in chosen for job in jobs(entry, output)}
    missing = [job for job in work.values() if force or job.found.record is None]
    done = len(work) - len(missing)
    if done:
        say(f"{done} of {len(work)} units have a record already; `--force` computes them again.")
    for job in missing:
        if job.found.reason:
            say(f"{job.artifact} {job.unit} is computed again: {job.found.reason}.")
    written: set[tuple[str, str]] = set()
    with tqdm(total=len(work), initial=done, unit="unit", disable=not progress) as bar:
        try:
            for found in executor.map(ft.partial(compute, inputs=inputs, output=output), grouped(missing)):
                record.write(output.record(found.artifact, found.unit), found)
                # What came of a group before its process was lost comes again.
                written.add((found.artifact, found.unit))
                bar.update(done + len(written) - bar.n)
                bar.set_description(f"{found.artifact} {found.unit}")
        except KeyboardInterrupt as stop:
            raise InterruptedRunError(done + len(written), len(work), str(stop)) from None


def collect(entry: Artifact, output: Output, *, partial: bool = False) -> None:
    """Write the CSV of an artifact from its records, all of which must be there unless it may be `partial`."""
    work = jobs(entry, output)
    records = [job.found.record for job in work if job.found.record is not None]
    if not records or (len(records) < len(work) and not partial):
        words = "".join(f" {option}" for option in output.variant.options)
        raise ReproduceError(
            f"{entry.id} has {len(records)} of its {len(work)} units at tier {output.tier}{words} in {output.root}; "
            f"`python -m reproduce run --tier {output.tier} --only {entry.id} --out {output.root}{words}` computes the "
            "rest."
        )
    aggregate.write_csv(output.csv(entry.id), records)


def complete(output: Output) -> list[Artifact]:
    """Return the artifacts that have all their records at a tier, and see to it that their CSVs are of these."""
    found = [
        entry for entry in select(tier=output.tier) if all(job.found.record is not None for job in jobs(entry, output))
    ]
    for entry in found:
        collect(entry, output)
    return found


def fingerprint(work: Sequence[Job]) -> str:
    """Return a checksum of runs by their names and hashes: equal for the same configurations and experiments."""
    lines = sorted(f"{job.unit} {job.hash}" for job in work)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def origin(entry: Artifact, output: Output) -> dict[str, Any]:
    """Return where the numbers of an artifact come from: the provenance of its records, their time added up.

    A long run may have been continued by another commit: what differs between records is then a list of its values.
    """
    work = jobs(entry, output)
    records = [job.found.record for job in work if job.found.record is not None]
    merged: dict[str, Any] = {}
    for name in records[0].provenance:
        values = [found.provenance.get(name) for found in records]
        # What was restored from accepted numbers of several commits has a list already.
        flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
        different = list({json.dumps(value): value for value in flat}.values())
        merged[name] = different[0] if len(different) == 1 else different
    merged["seconds"] = round(sum(found.provenance["seconds"] for found in records), 1)
    merged["units"] = len(records)
    merged["missing"] = len(work) - len(records)
    merged["fingerprint"] = fingerprint([job for job in work if job.found.record is not None])
    return merged


def _drawn(entry: Artifact, output: Output, csv: Path, *kinds: str) -> list[bytes]:
    """Return the pictures of numbers of an artifact, one of each kind."""
    rows = aggregate.read_rows(csv)
    with style_context():
        options = {"config": entry.at_tier(output.tier, output.variant)} if entry.draws_config else {}
        figure = entry.draw(rows, **options)
        return pictures(figure, *kinds, note=entry.note(output.tier, output.variant))


def draw(entry: Artifact, output: Output) -> None:
    """Draw an artifact from its CSV, as PDF and PNG."""
    kinds = ("pdf", "png")
    for kind, content in zip(kinds, _drawn(entry, output, output.csv(entry.id), *kinds), strict=True):
        write_atomically(output.figure(entry.id, kind), content)


def draw_accepted(entry: Artifact, output: Output, reference: Path) -> Path | None:
    """Draw the accepted numbers of an artifact again, as after a change of its drawing; nothing if it has no picture.

    Args:
        entry: the artifact.
        output: its tier.
        reference: folder of the accepted numbers.
    """
    picture = reference / output.tier / "figures" / f"{entry.id}.png"
    if not picture.exists():
        return None
    (content,) = _drawn(entry, output, reference / output.tier / f"{entry.id}.csv", "png")
    write_atomically(picture, content)
    return picture


def settle(chosen: Sequence[Artifact], output: Output) -> list[LedgerLine]:
    """Judge the claims of artifacts from their CSVs."""
    lines = []
    for entry in chosen:
        rows = aggregate.read_rows(output.csv(entry.id))
        lines += [judge(claim, rows) for claim in entry.claims]
    return lines


def write_ledger(lines: Sequence[LedgerLine], output: Output) -> None:
    """Write the ledger as Markdown and CSV."""
    write_atomically(output.claims("md"), ledger.as_markdown(lines, tier=output.tier).encode())
    write_atomically(output.claims("csv"), ledger.as_csv(lines).encode())
