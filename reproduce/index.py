"""The index of artifacts, read from `artifacts.toml`."""

import functools as ft
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .configs.image_paper import DEFAULT, Variant
from .errors import UsageError, unknown

_PATH = Path(__file__).with_name("artifacts.toml")


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a number may lie from its reference: at most `absolute + relative * |reference|`."""

    absolute: float = 0.0
    relative: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the index says of one artifact."""

    id: str
    title: str
    label: str
    session: str
    hardware: str
    minutes: Mapping[str, float]
    data: str
    exact: bool
    claims: tuple[str, ...]
    tolerances: Mapping[str, Tolerance]

    def time(self, tier: str) -> str:
        """Return how long it takes at a tier, as people say it; empty for a tier that it does not have."""
        if tier not in self.minutes:
            return ""
        value = self.minutes[tier]
        if value < 1:
            return f"{60 * value:.0f} s"
        return f"{value:g} min" if value < 120 else f"{value / 60:.0f} h"

    def machine(self, tier: str) -> str:
        """Return what a tier runs on: `hardware` names it first, then each tier for which it is another one."""
        first, *others = self.hardware.split("; ")
        return dict(other.split(": ") for other in others).get(tier, first)

    def note(self, tier: str, variant: Variant = DEFAULT) -> str:
        """Return what the corner of the figure says; empty for the paper's own data at full size."""
        if variant.name:
            return variant.words(tier)
        if tier == "paper":
            return self.data if self.exact else ""
        return f"tier {tier} · {self.data}"


@ft.cache
def entries() -> dict[str, Entry]:
    """Return all entries by id."""
    index = tomllib.loads(_PATH.read_text(encoding="utf-8"))
    return {name: _entry(name, table) for name, table in index.items()}


def _entry(name: str, table: dict) -> Entry:
    """Return one entry from its table."""
    tolerances = {metric: Tolerance(**limits) for metric, limits in table.pop("tolerances", {}).items()}
    return Entry(id=name, claims=tuple(table.pop("claims")), tolerances=tolerances, **table)


def select(only: Sequence[str] = (), session: str | None = None, *, tier: str) -> list[Entry]:
    """Return the entries with these ids and of this session that have this tier, in the order of the index."""
    known = entries()
    for name in only:
        if name not in known:
            raise unknown("--only", name, known)
        if tier not in known[name].minutes:
            raise UsageError(f"`--tier` must be {' or '.join(known[name].minutes)} for {name}; got {tier}.")
    sessions = sorted({entry.session for entry in known.values()})
    if session is not None and session not in sessions:
        raise unknown("--session", session, sessions)
    chosen = [entry for entry in known.values() if session in (None, entry.session) and tier in entry.minutes]
    if not chosen:
        raise UsageError(f"`--tier` must be one that the session {session} has; got {tier}.")
    return [entry for entry in chosen if not only or entry.id in only]
