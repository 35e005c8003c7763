"""Runs the units of artifacts, keeps their records, and turns complete artifacts into CSV, figures and ledger."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tqdm import tqdm

from . import aggregate, record
from .claims import CLAIMS, LedgerLine, judge
from .errors import ReproduceError
from .files import write_atomically
from .index import Entry, select
from .paths import Output
from .provenance import package_version, provenance
from .record import Record
from .registry import REGISTRY
from .seeds import SEEDS
from .style import picture_bytes, style_context
from .tables import ledger

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

    def __init__(self, done: int, total: int):
        """Initialize with how many units are done."""
        super().__init__(f"Stopped: {done} of {total} units are done and kept.")


def jobs(entry: Entry, output: Output) -> list[Job]:
    """Return the runs of an artifact at a tier, and which of them have a valid record."""
    artifact = REGISTRY[entry.id]
    version = package_version()
    found = []
    for unit, config in artifact.at_tier(output.tier).units().items():
        wanted = record.config_hash(
            artifact=entry.id,
            unit=unit,
            config=config,
            seed=SEEDS[entry.id],
            version=version,
            source=artifact.source,
        )
        lookup = record.look_up(output.record(entry.id, unit), wanted=wanted, version=version)
        found.append(Job(artifact=entry.id, unit=unit, config=config, hash=wanted, found=lookup))
    return found


def _compute(job: Job) -> Record:
    """Run one unit."""
    import jax.random as jr

    from epinet_eqx import named_keys

    seed = SEEDS[job.artifact]
    (key,) = named_keys(jr.key(seed), job.unit)
    start = time.perf_counter()
    rows = REGISTRY[job.artifact].load_run()(job.config, key=key)
    return Record(
        artifact=job.artifact,
        unit=job.unit,
        hash=job.hash,
        version=package_version(),
        config=asdict(job.config),
        seed=seed,
        rows=rows,
        provenance=provenance(seconds=time.perf_counter() - start),
    )


def run(chosen: Sequence[Entry], output: Output, *, force: bool, progress: bool, say: Say) -> None:
    """Compute what is missing; `force` computes all of it again."""
    work = [job for entry in chosen for job in jobs(entry, output)]
    missing = [job for job in work if force or job.found.record is None]
    done = len(work) - len(missing)
    if done:
        say(f"{done} of {len(work)} units have a record already; `--force` computes them again.")
    with tqdm(total=len(work), initial=done, unit="unit", disable=not progress) as bar:
        for job in missing:
            bar.set_description(f"{job.artifact} {job.unit}")
            if job.found.reason:
                say(f"{job.artifact} {job.unit} is computed again: {job.found.reason}.")
            try:
                record.write(output.record(job.artifact, job.unit), _compute(job))
            except KeyboardInterrupt:
                raise InterruptedRunError(done, len(work)) from None
            done += 1
            bar.update()


def collect(entry: Entry, output: Output) -> None:
    """Write the CSV of an artifact from its records, all of which must be there."""
    work = jobs(entry, output)
    records = [job.found.record for job in work if job.found.record is not None]
    if len(records) < len(work):
        raise ReproduceError(
            f"{entry.id} has {len(records)} of its {len(work)} units at tier {output.tier} in {output.root}; "
            f"`python -m reproduce run --tier {output.tier} --only {entry.id} --out {output.root}` computes the rest."
        )
    aggregate.write_csv(output.csv(entry.id), records)


def complete(output: Output) -> list[Entry]:
    """Return the artifacts that have all their records at a tier, and see to it that their CSVs are of these."""
    found = [entry for entry in select() if all(job.found.record is not None for job in jobs(entry, output))]
    for entry in found:
        collect(entry, output)
    return found


def origin(entry: Entry, output: Output) -> dict[str, Any]:
    """Return where the numbers of an artifact come from: the provenance of its records, without their durations."""
    records = [job.found.record for job in jobs(entry, output) if job.found.record is not None]
    origins = [{name: value for name, value in r.provenance.items() if name != "seconds"} for r in records]
    if any(other != origins[0] for other in origins):
        raise ReproduceError(
            f"The records of {entry.id} come from different programs or machines; "
            f"`python -m reproduce run --tier {output.tier} --only {entry.id} --force` makes them of one."
        )
    return origins[0]


def draw(entry: Entry, output: Output) -> None:
    """Draw an artifact from its CSV, as PDF and PNG."""
    rows = aggregate.read_rows(output.csv(entry.id))
    with style_context():
        figure = REGISTRY[entry.id].load_draw()(rows)
        for kind in ("pdf", "png"):
            content = picture_bytes(figure, kind, note=entry.note(output.tier))
            write_atomically(output.figure(entry.id, kind), content)


def settle(chosen: Sequence[Entry], output: Output) -> list[LedgerLine]:
    """Judge the claims of artifacts from their CSVs."""
    lines = []
    for entry in chosen:
        rows = aggregate.read_rows(output.csv(entry.id))
        lines += [judge(CLAIMS[claim], rows) for claim in entry.claims]
    return lines


def write_ledger(lines: Sequence[LedgerLine], output: Output) -> None:
    """Write the ledger as Markdown and CSV."""
    write_atomically(output.claims("md"), ledger.as_markdown(lines, tier=output.tier).encode())
    write_atomically(output.claims("csv"), ledger.as_csv(lines).encode())
