"""From an artifact's id to what computes it, what draws it, and its sizes.

Modules are named, not imported, so that listing and drawing need no JAX.
"""

import ast
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .configs import (
    BNNsAsENNs,
    Config,
    EnnRabbitDuck,
    EpinetDiagram,
    LinearGaussianEpinet,
    MarginalsInsufficient,
    RabbitDuck,
    ShortfallBound,
)
from .errors import unknown
from .tiers import TIERS

_EXPERIMENTS = Path(__file__).with_name("experiments")


def _sources(module: str) -> dict[str, bytes]:
    """Return the sources of a module of experiments and of those that it imports, by name."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _EXPERIMENTS.joinpath(f"{name}.py").read_bytes()
            nodes = [node for node in ast.walk(ast.parse(found[name])) if isinstance(node, ast.ImportFrom)]
            waiting += [node.module.split(".")[0] for node in nodes if node.level == 1 and node.module]
    return found


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One figure, table or theorem.

    Attributes:
        config: the configuration at tier `paper`.
        run: `module:function` in `reproduce.experiments`; the function maps a unit and `key=` to rows of results.
        draw: module in `reproduce.figures` whose `draw` maps rows to a figure.
        tiers: the configuration at each tier.
    """

    config: Config
    run: str
    draw: str
    tiers: Mapping[str, Callable[[Config], Config]]

    def at_tier(self, tier: str) -> Config:
        """Return the configuration at a tier."""
        if tier not in self.tiers:
            raise unknown("--tier", tier, self.tiers)
        return self.tiers[tier](self.config)

    @property
    def source(self) -> bytes:
        """The source of the experiment: its module, and the modules of experiments that it imports."""
        return b"".join(source for _, source in sorted(_sources(self.run.split(":")[0]).items()))

    def load_run(self) -> Callable[..., Any]:
        """Import and return the experiment."""
        module, function = self.run.split(":")
        return getattr(importlib.import_module(f"reproduce.experiments.{module}"), function)

    def load_draw(self) -> Callable[..., Any]:
        """Import and return the drawing function."""
        return importlib.import_module(f"reproduce.figures.{self.draw}").draw


REGISTRY: dict[str, Artifact] = {
    "fig01": Artifact(config=RabbitDuck(), run="rabbit_duck:tables", draw="fig01", tiers=TIERS),
    "fig03": Artifact(config=EnnRabbitDuck(), run="rabbit_duck:outputs", draw="fig03", tiers=TIERS),
    "fig04": Artifact(config=EpinetDiagram(), run="epinet_diagram:structure", draw="fig04", tiers=TIERS),
    "thm1": Artifact(config=MarginalsInsufficient(), run="thm1:decide", draw="thm1", tiers=TIERS),
    "thm2": Artifact(config=ShortfallBound(), run="thm2:run", draw="thm2", tiers=TIERS),
    "thm3": Artifact(config=BNNsAsENNs(), run="thm3:run", draw="thm3", tiers=TIERS),
    "thm4": Artifact(config=LinearGaussianEpinet(), run="thm4:run", draw="thm4", tiers=TIERS),
}
