"""Tasks on the workers of a Dask cluster, which may come, go, and have other packages installed."""

import contextlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any

from .errors import ReproduceError, UsageError
from .provenance import versions

# A task that has cost this many workers is abandoned: it is probably what kills them.
_MAX_LOST = 3

# How long a cluster of this process may take to start a lost worker anew before it is closed.
_RESTART_SECONDS = 20


def _all_of(function: Callable[[Any], Iterable[Any]], task: Any, expected: Mapping[str, str]) -> list[Any]:
    """Return all results of a task, if this worker has the packages of the process that asked."""
    found = versions()
    for name, version in expected.items():
        if found.get(name) != version:
            raise ReproduceError(
                f"Dask workers must have {name} {version}, as this process has; the one on {platform.node()} has "
                f"{found.get(name, 'none')}."
            )
    return list(function(task))


class Dask:
    """The workers of a Dask cluster. A task whose worker is lost is given to another."""

    def __init__(self, client: Any):
        """Initialize with a client of the cluster."""
        self.client = client

    def map(self, function: Callable[[Any], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the results as they come."""
        import distributed

        # `pure=False`: a task that is asked for again is computed again.
        expected = versions()
        futures = [self.client.submit(_all_of, function, task, expected, pure=False) for task in tasks]
        for future in distributed.as_completed(futures):
            try:
                results = future.result()
            except distributed.KilledWorker:
                raise ReproduceError(
                    f"A Dask worker was killed {_MAX_LOST} times in the same task, perhaps for want of memory; what "
                    "was finished is kept."
                ) from None
            except RuntimeError as error:
                if "deserialization" in str(error):
                    raise ReproduceError(
                        "The Dask scheduler and its workers must be able to import `reproduce`: start them in the "
                        "folder that holds it, with the packages of this process."
                    ) from error
                raise
            except (CancelledError, OSError):
                if future.status == "error":
                    raise
                raise ReproduceError("The Dask scheduler was lost; what was finished is kept.") from None
            yield from results


@contextlib.contextmanager
def open_dask(workers: int, scheduler: str | None) -> Iterator[Dask]:
    """Yield an executor on a given cluster, or on one that lives as long as this.

    Args:
        workers: number of workers of a cluster on this machine.
        scheduler: address of a scheduler that is running.
    """
    try:
        import dask.config
        import distributed
    except ImportError:
        raise ReproduceError(
            "`--executor dask` needs a package that is not installed: `pip install 'epinet_eqx[dask]'` installs it."
        ) from None
    with dask.config.set({"distributed.scheduler.allowed-failures": _MAX_LOST - 1}):
        if scheduler is not None:
            try:
                client = distributed.Client(scheduler)
            except OSError:
                raise ReproduceError(f"No Dask scheduler answers at `--scheduler` {scheduler}.") from None
            except ValueError as error:
                raise UsageError(
                    f"`--scheduler` must be an address such as tcp://127.0.0.1:8786; got {scheduler} ({error})."
                ) from None
            with client:
                yield Dask(client)
            return
        with (
            distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster) as client,
        ):
            try:
                yield Dask(client)
            finally:
                # Closed while it starts a lost worker anew, a cluster fails to join a process that is not there yet.
                with contextlib.suppress(OSError):
                    client.wait_for_workers(workers, timeout=_RESTART_SECONDS)
