"""Several processes as one program."""

import argparse
from typing import Any

import jax


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    detect: bool = False,
) -> None:
    """Join this process with the others of its run, before anything else uses a device.

    With nothing given, the program is a single process.

    Args:
        coordinator: `host:port` of the first process.
        num_processes: number of processes.
        process_id: the number of this one, from zero.
        detect: whether all of this is found out from the environment: that of Slurm, Open MPI, Kubernetes or a TPU pod.
    """
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if detect:
        if len(missing) < 3:
            raise ValueError(f"`detect` must be false where processes are described by hand; got {given}.")
        jax.distributed.initialize()
        return
    if len(missing) == 3:
        return
    if missing or coordinator is None or num_processes is None or process_id is None:
        raise ValueError(f"`{missing[0]}` must be given where other flags of distributed training are; got {given}.")
    if not 0 <= process_id < num_processes:
        raise ValueError(f"`process_id` must be from 0 to {num_processes - 1}; got {process_id}.")
    jax.distributed.initialize(coordinator, num_processes, process_id)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `initialize` to a command line; `initialize_from` reads them."""
    group = parser.add_argument_group("several processes")
    group.add_argument("--distributed", action="store_true", help="find the other processes (Slurm, TPU pod, MPI)")
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of the first process")
    group.add_argument("--num-processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process-id", type=int, metavar="I", help="number of this process, from zero")


def initialize_from(flags: Any) -> None:
    """Call `initialize` as the parsed flags of a command line say."""
    initialize(flags.coordinator, flags.num_processes, flags.process_id, detect=flags.distributed)
