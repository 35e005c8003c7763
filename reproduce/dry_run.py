"""What a run would take: networks, steps, operations, memory, hours and disk, without training anything."""

from collections.abc import Callable, Sequence

from .errors import ReproduceError
from .index import Entry
from .inputs import Inputs
from .paths import Output
from .record import Row
from .registry import REGISTRY
from .runner import grouped, jobs, networks_in
from .seeds import SEEDS

DEFAULT_TFLOPS = 50.0
"""Speed of one device: about half of what accelerators of the paper's time promise."""

_HEADER = ("network", "copies", "steps", "GFLOP/step", "GB/device", "hours", "GB disk")


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


def _hours(row: Row, num_devices: int, tflops: float) -> float:
    """Return the hours that all copies of a network take."""
    return float(row["copies"]) * float(row["steps"]) * float(row["flops"]) / (num_devices * tflops * 1e12) / 3600


def table(rows: Sequence[Row], *, num_devices: int, tflops: float) -> str:
    """Return the networks as a table, with sums."""
    lines: list[tuple[str, ...]] = [_HEADER]
    for row in rows:
        lines.append(
            (
                str(row["network"]),
                str(row["copies"]),
                str(row["steps"]),
                f"{float(row['flops']) / 1e9:,.3g}"
                if float(row["flops"]) < 1e12
                else f"{float(row['flops']) / 1e9:,.0f}",
                f"{float(row['memory']) / 1e9:.3g}",
                f"{_hours(row, num_devices, tflops):.3g}",
                f"{float(row['disk']) / 1e9:.3g}",
            )
        )
    hours = sum(_hours(row, num_devices, tflops) for row in rows)
    disk = sum(float(row["disk"]) for row in rows) / 1e9
    copies = sum(int(row["copies"]) for row in rows)
    lines.append(("all", str(copies), "", "", "", f"{hours:.3g}", f"{disk:.3g}"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def dry_run(
    chosen: Sequence[Entry], output: Output, *, inputs: Inputs, tflops: float, say: Callable[[str], None]
) -> str:
    """Return in words and tables what the artifacts would train; those without networks are only named.

    Args:
        chosen: the artifacts.
        output: the tier, data set and preset.
        inputs: folders and options of the command line.
        tflops: operations per second of a device, in units of 10^12.
        say: prints what is being compiled.
    """
    import jax
    import jax.random as jr

    parts = []
    without = [entry.id for entry in chosen if not REGISTRY[entry.id].plan]
    if without:
        parts.append(f"{', '.join(without)}: nothing is known before they run.")
    images = [job for entry in chosen if REGISTRY[entry.id].plan for job in jobs(entry, output)]
    for group in grouped(images):
        artifact, folder = REGISTRY[group[0].artifact], REGISTRY[group[0].artifact].folder(group[0].artifact)
        configs = [job.config for job in group]
        own = networks_in(group[0].artifact, inputs, output)
        rows = artifact.load_plan()(configs, inputs=own, key=jr.key(SEEDS[folder]), say=say)
        kind = jax.devices()[0].platform
        parts.append(
            f"{folder}, seed {configs[0].seed}, data {configs[0].protocol.dataset}, on {len(jax.devices())} devices "
            f"({kind}):\n" + table(rows, num_devices=len(jax.devices()), tflops=tflops)
        )
    parts.append(
        f"Operations are counted by XLA for one step on all devices, memory is that of the program as compiled for "
        f"these devices; hours are for training alone, at {tflops:g} TFLOP/s per device (`--tflops`)."
    )
    return "\n\n".join(parts)
