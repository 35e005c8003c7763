"""The estimated cost of a run: networks, steps, operations, memory, hours and disk, without training anything."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from .artifact import Artifact
from .errors import ReproduceError
from .inputs import Inputs
from .paths import Output
from .record import Job, Records
from .registry import REGISTRY
from .runner import networks_in

DEFAULT_TFLOPS = 50.0
"""Speed of one device: about half of what accelerators of the paper's time promise."""

_HEADER = ("copies", "steps", "GFLOP/step", "GB/device", "hours", "GB disk")


def simulate_devices(count: int) -> None:
    """Make the CPU look like several devices; before JAX is used."""
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise ReproduceError(f"`--devices` must be known before JAX starts; {error}") from error
    if len(jax.devices()) != count:
        raise ReproduceError(
            f"`--devices` simulates devices on a CPU; got {count}, and {len(jax.devices())} of {jax.default_backend()}."
        )


@dataclasses.dataclass(kw_only=True)
class _Line:
    """A line of the table: trainings of the same name, program and length."""

    name: str
    training: Any
    copies: int
    disk: int

    def hours(self, flops: float, speed: float) -> float:
        """Return the hours that all copies take.

        Args:
            flops: operations of a step.
            speed: operations per second of all devices.
        """
        return self.copies * self.training.steps * flops / speed / 3600


def _difference(detail: Any, other: Any) -> str:
    """Return the differences between two configurations."""
    names = [field.name for field in dataclasses.fields(detail)]
    different = [name for name in names if getattr(detail, name) != getattr(other, name)]
    return "".join(f", {name} {getattr(detail, name)}" for name in different)


def _lines(trainings: Sequence[Any], num_seeds: int) -> list[_Line]:
    """Return the lines of the table, those first that are compiled soonest."""
    import jax

    lines: dict[Any, _Line] = {}
    first: dict[str, Any] = {}
    for training in trainings:
        copies = num_seeds * training.copies
        key = (training.name, training.program, training.steps)
        if key in lines:
            lines[key].copies += copies
            lines[key].disk += copies * training.disk
            continue
        name, origin = training.name, first.setdefault(training.name, training.detail)
        if dataclasses.is_dataclass(origin):
            name += _difference(training.detail, origin)
        lines[key] = _Line(name=name, training=training, copies=copies, disk=copies * training.disk)
    return sorted(lines.values(), key=lambda line: len(jax.tree.leaves(line.training.arguments)))


def tabulate(
    trainings: Sequence[Any], *, num_seeds: int = 1, num_devices: int, tflops: float, progress: bool = False
) -> Iterator[str]:
    """Compile each program once and yield a table of the trainings, line by line as they are known, then their sums.

    Args:
        trainings: what `plan` of an experiment returns.
        num_seeds: number of repetitions.
        num_devices: number of devices.
        tflops: operations per second of a device, in units of 10^12.
        progress: whether to show a progress bar.
    """
    from .counting import count

    lines = _lines(trainings, num_seeds)
    width = max(len(name) for name in ("network", *(line.name for line in lines)))

    def text(name: str, *cells: str) -> str:
        return name.ljust(width) + "".join(cell.rjust(12) for cell in cells)

    yield text("network", *_HEADER)
    hours = 0.0
    counted: dict[Any, Any] = {}
    with tqdm(lines, unit="network", disable=not progress, leave=False) as bar:
        for line in bar:
            bar.set_description(f"compiling {line.name}")
            program = line.training.program
            if program not in counted:
                counted[program] = count(line.training.step, line.training.arguments)
            flops, memory = counted[program].flops, counted[program].memory
            own = line.hours(flops, num_devices * tflops * 1e12)
            hours += own
            cells = (str(line.copies), str(line.training.steps), f"{flops / 1e9:,.{0 if flops > 1e12 else 3}f}")
            yield text(line.name, *cells, f"{memory / 1e9:.3g}", f"{own:.3g}", f"{line.disk / 1e9:.3g}")
    copies, disk = (sum(getattr(line, name) for line in lines) for name in ("copies", "disk"))
    yield text("all", str(copies), "", "", "", f"{hours:.3g}", f"{disk / 1e9:.3g}")


def _by_protocol(work: Sequence[Job]) -> list[list[list[Job]]]:
    """Return the jobs of each protocol, one list per seed."""
    found: dict[Any, dict[int, list[Job]]] = {}
    for job in work:
        key = (job.folder, job.config.protocol)
        found.setdefault(key, {}).setdefault(job.config.seed, []).append(job)
    return [list(by_seed.values()) for by_seed in found.values()]


def dry_run(
    chosen: Sequence[Artifact],
    output: Output,
    *,
    inputs: Inputs,
    tflops: float,
    progress: bool,
    say: Callable[[str], None],
) -> None:
    """Say in words and tables what the artifacts would train; those without networks are only named.

    Args:
        chosen: the artifacts.
        output: the tier, data set and preset.
        inputs: folders and options of the command line.
        tflops: operations per second of a device, in units of 10^12.
        progress: whether to show a progress bar.
        say: prints a line.
    """
    import jax
    import jax.random as jr

    without = [entry.id for entry in chosen if not entry.plan]
    if without:
        say(f"{', '.join(without)}: only what image figures take is known before they run.")
    planned = [entry for entry in chosen if entry.plan]
    kind, num_devices = jax.devices()[0].platform, len(jax.devices())
    records = Records(output)
    for groups in _by_protocol([job for entry in planned for job in records.jobs(entry)]):
        first = groups[0][0]
        artifact = REGISTRY[first.artifact].at(output.tier, output.variant)
        own = networks_in(artifact, inputs, output)
        trainings = artifact.load(artifact.plan)(
            [job.config for job in groups[0]], inputs=own, key=jr.key(artifact.seed)
        )
        seeds = ", ".join(str(group[0].config.seed) for group in groups)
        say(
            f"{artifact.folder}, seed{'s' if len(groups) > 1 else ''} {seeds}, data {first.config.protocol.dataset}, "
            f"on {num_devices} devices ({kind}):"
        )
        for line in tabulate(
            trainings, num_seeds=len(groups), num_devices=num_devices, tflops=tflops, progress=progress
        ):
            say(line)
        say("")
    if planned:
        say(
            "Operations are those that XLA counts in one step on all devices; hours are for training alone, at "
            f"{tflops:g} TFLOP/s per device (`--tflops`).\nMemory is what XLA sets aside on each device for the step, "
            f"its state and its batch, as compiled for a {kind}; other kinds of devices need somewhat more or less."
        )
