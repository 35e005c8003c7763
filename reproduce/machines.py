"""How and why numbers differ between machines.

Numbers agree to the last digit only where the same programs run: the same versions, instruction set, number of devices
and threads, and compiler flags. XLA compiles for the instructions of the processor, and a sum in another order or with
fused products rounds differently; training amplifies that. Elsewhere, `verify` allows each metric its tolerance.
"""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import write_atomically

_CPU_INFO = Path("/proc/cpuinfo")

# Instructions that change how XLA rounds, weakest first.
_FLAGS = ("sse4_2", "avx", "fma", "avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve", "sve2")

_KEYS = {
    "python": "Python",
    "instructions": "the instruction set",
    "cpus": "the number of processors",
    "backend": "the backend",
    "device": "the device",
    "num_devices": "the number of devices",
    "matmul_precision": "the precision of products",
    "xla_flags": "XLA_FLAGS",
    "x64": "double precision",
}
# Defaults of fields that older records lack.
_DEFAULTS = {"x64": False}

CONFIRMED = "machines.json"
"""Where `verify --record` notes machines, beside the accepted numbers."""

_PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "optax")


def instructions() -> str:
    """Return the architecture of the processor and those of its instructions that change how numbers are rounded."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    # "flags" on x86, "Features" on ARM.
    flags = next(
        (line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    return " ".join([platform.machine(), *(flag for flag in _FLAGS if flag in flags)])


def usable_cpus() -> int | None:
    """Return how many processors this process may use: XLA has as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def setting(origin: Mapping[str, Any]) -> str:
    """Return the unusual settings of an origin in words.

    Args:
        origin: as `results.origin` returns it.
    """
    threads, cpus = origin.get("threads"), origin.get("cpus")
    words = [f"{threads} of {cpus} processors"] if threads and threads != cpus else []
    words += [f"XLA_FLAGS={flags}"] if (flags := origin.get("xla_flags")) else []
    words += ["double precision"] if origin.get("x64") else []
    return ", ".join(words) or "default"


def _told(value: Any) -> str:
    """Return a value in words."""
    return "not recorded" if value is None else "nothing" if value == "" else str(value)


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Return what two origins of numbers differ in that rounding depends on, one phrase each.

    Args:
        here: where fresh numbers come from, as `origin` returns it.
        there: where accepted numbers come from, as the manifest says.
    """
    pairs = [(words, *(one.get(key, _DEFAULTS.get(key)) for one in (here, there))) for key, words in _KEYS.items()]
    both = [origin.get("versions") or {} for origin in (here, there)]
    if all(isinstance(one, Mapping) for one in both):
        pairs += [(name, both[0].get(name), both[1].get(name)) for name in _PACKAGES]
    elif both[0] != both[1]:
        pairs.append(("the versions of packages", json.dumps(both[0]), json.dumps(both[1])))
    # An instruction set that neither has recorded may differ.
    unknown = here.get("instructions") is None and there.get("instructions") is None
    found = ["the instruction set: not recorded here, not recorded there"] if unknown else []
    return found + [f"{words}: {_told(one)} here, {_told(other)} there" for words, one, other in pairs if one != other]


def read_confirmed(reference: Path) -> list[dict[str, Any]]:
    """Return the machines and settings that `verify --record` noted.

    Args:
        reference: folder of the accepted CSVs.
    """
    path = reference / CONFIRMED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def confirm(reference: Path, origin: Mapping[str, Any], tier: str, artifacts: Mapping[str, Mapping[str, Any]]) -> Path:
    """Note how artifacts compared on a machine; what was noted of the same ones before is replaced.

    Args:
        reference: folder of the accepted CSVs.
        origin: where the fresh numbers come from, as `results.origin` returns it.
        tier: their tier.
        artifacts: by id, how each compared: `agrees` is "digits", "tolerance" or "apart"; `digits` is the number of
            significant digits that all its numbers share, None if that is all of them; `largest` is the largest
            deviation as a fraction of what is allowed; `verdicts` are how many are the accepted ones, and of how many.
    """
    versions = origin.get("versions") or {}
    jax = versions.get("jax") if isinstance(versions, Mapping) else None
    place = {"instructions": origin.get("instructions"), "cpus": origin.get("cpus"), "jax": jax}
    place |= {"setting": setting(origin), "tier": tier}
    found = read_confirmed(reference)
    entry = next((one for one in found if place.items() <= one.items()), None)
    if entry is None:
        found.append(entry := {**place, "artifacts": {}})
    entry["artifacts"] |= artifacts
    found.sort(key=lambda one: [str(one[key]) for key in place])
    path = reference / CONFIRMED
    write_atomically(path, (json.dumps(found, indent=1) + "\n").encode())
    return path
