"""Where a number comes from: versions, machine, settings."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from .machines import instructions, usable_cpus

_PACKAGES = ("epinet_eqx", "jax", "jaxlib", "equinox", "optax", "numpy")
_ROOT = Path(__file__).parents[1]


def package_version() -> str:
    """Return the version of the package whose results are recorded."""
    return importlib.metadata.version("epinet_eqx")


def versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _git_commit() -> str | None:
    """Return the commit of the source tree, marked if it has changes; none outside a repository."""
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip()


def provenance(*, seconds: float) -> dict[str, Any]:
    """Return the provenance of a record: program and machine.

    Args:
        seconds: how long the run took.
    """
    import jax

    devices = jax.devices()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": usable_cpus(),
        "instructions": instructions(),
        "versions": versions(),
        "commit": _git_commit(),
        "backend": devices[0].platform,
        "device": devices[0].device_kind,
        "num_devices": len(devices),
        "matmul_precision": jax.config.jax_default_matmul_precision,  # pyright: ignore[reportAttributeAccessIssue]
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        "seconds": round(seconds, 3),
    }
