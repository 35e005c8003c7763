"""The unit of work: from artifacts to groups of runs, to the records of each.

    artifacts -> jobs, one per run that has no record -> groups, which are computed at once
              -> an executor calls `compute` on each group, here or elsewhere
              -> the records come back one by one and are written here

Nothing else computes or writes records. `results.py` makes numbers, figures and verdicts of them.
"""

import functools as ft
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .artifact import Artifact
from .errors import ReproduceError
from .executors import Executor
from .inputs import Inputs
from .memory import forget_programs, told
from .paths import Output
from .progress import Progress
from .provenance import package_version, provenance
from .record import Job, Record, Records, wanted_hash
from .registry import REGISTRY


class InterruptedRunError(ReproduceError):
    """The run was stopped from the keyboard; completed units are kept."""

    def __init__(self, done: int, total: int, words: str = ""):
        """Initialize with how many units are done, and what else is known of the one that was not."""
        super().__init__(f"Stopped: {done} of {total} units are done and kept." + (f" {words}" if words else ""))


def _networks(artifact: Artifact, output: Output) -> Path:
    """Return the folder where an artifact keeps its networks: one per code, version and seed."""
    parts = (artifact.source, package_version().encode(), str(artifact.seed).encode())
    return output.networks(artifact.folder, hashlib.sha256(b"\0".join(parts)).hexdigest()[:12])


def networks_in(artifact: Artifact, inputs: Inputs, output: Output) -> Inputs:
    """Return the inputs of an artifact, with the place where its networks are kept."""
    return replace(inputs, networks=_networks(artifact, output))


def _check_code(artifact: Artifact, job: Job) -> None:
    """Raise if this process would compute a run by other code than the process that asks for it."""
    if wanted_hash(artifact, job.unit, job.config) != job.hash:
        raise ReproduceError(
            f"{artifact.id} {job.unit} must be computed by the code of the process that asks; this one has another "
            "version of the experiment. Start again, with one version everywhere."
        )


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
    artifact = REGISTRY[first.artifact].at(output.tier, output.variant)
    _check_code(artifact, first)
    key = jr.key(artifact.seed)
    run = artifact.load()
    if artifact.reads_inputs:
        run = ft.partial(run, inputs=networks_in(artifact, inputs, output))
    start = time.perf_counter()
    if artifact.groups:
        results = run([job.config for job in group], key=key)
    else:
        (own_key,) = named_keys(key, first.unit)
        results = [run(first.config, key=own_key)]
    # Results that come all at once each took an equal share of the time.
    share = (time.perf_counter() - start) / len(group) if isinstance(results, list) else None
    for job, rows in zip(group, told(results), strict=True):
        seconds = time.perf_counter() - start if share is None else share
        yield job.record(rows, provenance(seconds=seconds))
        start = time.perf_counter()


def grouped(work: Sequence[Job], output: Output) -> list[list[Job]]:
    """Return jobs as they are computed: alone, or in groups, which artifacts that share records share, too."""
    by_run: dict[tuple[str, str], dict[str, Job]] = {}
    artifacts = {job.artifact: REGISTRY[job.artifact].at(output.tier, output.variant) for job in work}
    for job in work:
        by_run.setdefault((job.folder, artifacts[job.artifact].run), {})[job.unit] = job
    found = []
    for own in by_run.values():
        artifact = artifacts[next(iter(own.values())).artifact]
        if artifact.groups:
            split = artifact.load(artifact.groups)({unit: job.config for unit, job in own.items()})
            found += [[own[unit] for unit in group] for group in split]
        else:
            found += [[job] for job in own.values()]
    return found


def run(
    chosen: Sequence[Artifact],
    records: Records,
    *,
    inputs: Inputs,
    force: bool,
    executor: Executor,
    progress: Progress,
    finish: Callable[[Artifact], None],
) -> None:
    """Compute what is missing.

    Args:
        chosen: the artifacts.
        records: the existing records; each new one is added when it is written.
        inputs: the folders that experiments read.
        force: whether to compute again what has a record.
        executor: where the groups are computed.
        progress: receives each finished unit.
        finish: called with each artifact when it is complete.
    """
    if force:
        for artifact in chosen:
            shutil.rmtree(_networks(artifact, records.output), ignore_errors=True)
    # What two artifacts share is one record, and computed once.
    work = {job.key: job for artifact in chosen for job in records.jobs(artifact)}
    missing = {key: job for key, job in work.items() if force or records.look_up(job).record is None}
    left = {artifact.id: {job.key for job in records.jobs(artifact)} & set(missing) for artifact in chosen}
    progress.begin(chosen, records, missing)
    for artifact in chosen:
        if not left[artifact.id]:
            finish(artifact)
    try:
        tasks = grouped(list(missing.values()), records.output)
        for found in executor.map(ft.partial(compute, inputs=inputs, output=records.output), tasks):
            records.add(found)
            key = (found.artifact, found.unit)
            # What came of a group before its process was lost comes again.
            missing.pop(key, None)
            progress.add(key, found.provenance["seconds"])
            for artifact in chosen:
                if key in left[artifact.id]:
                    left[artifact.id].remove(key)
                    if not left[artifact.id]:
                        finish(artifact)
    except KeyboardInterrupt as stop:
        raise InterruptedRunError(len(work) - len(missing), len(work), str(stop)) from None
