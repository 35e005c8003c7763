"""What a file in `artifacts/` declares: one figure, table, theorem or study, with everything about it."""

import ast
import functools as ft
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .claims import Claim
from .configs import Config, ImageStudy
from .configs.image_paper import DEFAULT, Variant
from .errors import unknown

SESSIONS = ("theory", "testbed", "imagenet", "cifar", "decisions")
"""The sessions, in the order in which artifacts are listed and computed."""

TIERS = ("smoke", "laptop", "paper", "replication")
"""The tiers: the wiring in seconds, the claims in minutes, the paper's sizes, and real data that a folder holds."""

_EXPERIMENTS = Path(__file__).with_name("experiments")


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far a number may lie from its reference: at most `absolute + relative * |reference|`."""

    absolute: float = 0.0
    relative: float = 0.0


@ft.cache
def _parsed(module: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the source of a module of experiments, and the names of those that it imports.

    Without comments and layout, which change no result.
    """
    tree = ast.parse(_EXPERIMENTS.joinpath(f"{module}.py").read_bytes())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = tuple(node.module.split(".")[0] for node in nodes if node.level == 1 and node.module)
    return ast.unparse(tree).encode(), imported


@ft.cache
def source_of(module: str) -> bytes:
    """Return the source of a module of experiments and of those that it imports, directly or not."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name], imported = _parsed(name)
            waiting += imported
    return b"".join(source for _, source in sorted(found.items()))


def _undrawn(rows: Sequence[Any]) -> Any:
    """Refuse to draw an artifact that was not taken from the registry, which finds `draw` in the artifact's file."""
    raise TypeError("`draw` must be the function in the artifact's file; take the artifact from `REGISTRY`.")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One figure, table, theorem or study.

    Attributes:
        title: what it shows.
        label: the paper's LaTeX label, or "beyond the paper".
        session: one of `SESSIONS`; `nox -s reproduce_<session>` computes it.
        order: its place within the session; those of one place are sorted by id.
        seed: seed of all its units. Artifacts that share records share the seed, no others do.
        tiers: the configuration at each tier that it has, smallest first.
        on_request: tiers at which it is computed only by its name or on data that are chosen, because what it shows
            there stands in for data that are not at hand.
        run: `module:function` in `reproduce.experiments`; the function maps a unit and `key=` to rows of results. With
            `groups` it maps several units and the key of all to a list of such rows.
        groups: name of a function of the same module that splits units into those that are computed at once.
        plan: name of a function of the same module that says what units would train, for `--dry-run`.
        records: folder of its records, by default its id. Artifacts with one folder share units of the same name.
        reads_inputs: whether the experiment takes `inputs=`, the folders that the command line names.
        draws_config: whether the drawing takes `config=`, the configuration of the rows.
        minutes: expected time on two cores, by tier; tier `paper` is extrapolated from `laptop` where nothing was
            recorded, and for image figures it is what `--dry-run` prints for training on 16 devices at 50 TFLOP/s, less
            what a figure above has trained.
        hardware: what it runs on; "CPU; paper: accelerators" names a tier with other needs.
        data: what the figure's corner says it was computed from.
        exact: whether `data` is the whole truth at every tier, also at tier `paper`.
        caption: what is to be seen beyond the title, as Typst markup for the paper.
        tolerances: of `verify`, by column; a column without one must be equal.
        place: where the paper has it, or what its claims are about; a claim may name another place.
        claims: its claims.
        from_scratch: the same figure with everything trained here, where the tier `laptop` reads the shipped banks: it
            is computed at the other tiers, and wherever another data set or preset is chosen.
        id: name of its file.
        draw: the function `draw` of its file, which maps rows to a figure.
    """

    title: str
    label: str = "beyond the paper"
    session: str
    order: int = 0
    seed: int
    tiers: Mapping[str, Config]
    on_request: tuple[str, ...] = ()
    run: str
    groups: str = ""
    plan: str = ""
    records: str = ""
    reads_inputs: bool = False
    draws_config: bool = False
    minutes: Mapping[str, float]
    hardware: str = "CPU"
    data: str
    exact: bool = False
    caption: str = ""
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    place: str = "beyond the paper"
    claims: tuple[Claim, ...] = ()
    from_scratch: "Artifact | None" = None
    id: str = ""
    draw: Callable[..., Any] = _undrawn

    @property
    def folder(self) -> str:
        """The folder of its records."""
        return self.records or self.id

    def minutes_of_session(self, tier: str) -> float:
        """Return the minutes that it adds to its session; none where it is computed on request only."""
        return 0.0 if tier in self.on_request else self.minutes.get(tier, 0.0)

    def at(self, tier: str, variant: Variant = DEFAULT) -> "Artifact":
        """Return the artifact as it is computed at a tier."""
        if self.from_scratch is None or (tier == "laptop" and not variant.name):
            return self
        return self.from_scratch

    def at_tier(self, tier: str, variant: Variant = DEFAULT) -> Config:
        """Return the configuration at a tier, of another data set or preset if it has them."""
        if tier not in self.tiers:
            raise unknown("--tier", tier, self.tiers)
        config = self.at(tier, variant).tiers[tier]
        return variant.apply(config, tier) if isinstance(config, ImageStudy) and variant.name else config

    @property
    def source(self) -> bytes:
        """The source of the experiment: its module, and the modules of experiments that it imports."""
        return source_of(self.run.partition(":")[0])

    def load(self, function: str = "") -> Callable[..., Any]:
        """Import the experiment and return what computes units, or another function of its module."""
        module, _, run = self.run.partition(":")
        return getattr(importlib.import_module(f"reproduce.experiments.{module}"), function or run)

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
        own = self.at(tier)
        if tier == "paper":
            return own.data if own.exact else ""
        return f"tier {tier} · {own.data}"
