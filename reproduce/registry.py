"""From an artifact's id to what computes it, what draws it, and its sizes.

Modules are named, not imported, so that listing and drawing need no JAX.
"""

import ast
import functools as ft
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .configs import (
    Ablation,
    ActiveLearning,
    AgentSummary,
    Bandits,
    BNNsAsENNs,
    Chains,
    Config,
    Curves,
    Departures,
    EnnRabbitDuck,
    EpinetDiagram,
    ImageStudy,
    LinearGaussianEpinet,
    MarginalsInsufficient,
    RabbitDuck,
    Scaling,
    Sets,
    ShortfallBound,
    Thesis,
)
from .configs.decisions import BanditSize
from .configs.image_paper import DEFAULT, Variant
from .configs.images import DIGITS, PAIRS, PAIRS_FIVE, Protocol
from .configs.replication import BankConfig, Replication, Study
from .errors import unknown
from .tiers import SIZES, TIERS

_EXPERIMENTS = Path(__file__).with_name("experiments")


@ft.cache
def _parsed(module: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the source of a module of experiments, and the names of those that it imports.

    Without comments and layout, which change no result.
    """
    tree = ast.parse(_EXPERIMENTS.joinpath(f"{module}.py").read_bytes())
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = tuple(node.module.split(".")[0] for node in nodes if node.level == 1 and node.module)
    return ast.unparse(tree).encode(), imported


def _sources(module: str) -> dict[str, bytes]:
    """Return the sources of a module of experiments and of those that it imports, by name."""
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name], imported = _parsed(name)
            waiting += imported
    return found


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One figure, table or theorem.

    Attributes:
        config: the configuration at tier `paper`.
        run: `module:function` in `reproduce.experiments`; the function maps a unit and `key=` to rows of results. With
            `groups` it maps several units and the key of all to a list of such rows.
        draw: module in `reproduce.figures` whose `draw` maps rows to a figure.
        tiers: the configuration at each tier.
        groups: name of a function of the same module that splits units into those that are computed at once.
        records: the folder of its records, by default its own. Artifacts with one folder have one seed, and share what
            they have in common.
        reads_inputs: whether the experiment takes `inputs=`, the folders that the command line names.
        plan: name of a function of the same module that says what units would train, for `--dry-run`.
        draws_config: whether the drawing takes `config=`, the configuration of the rows.
    """

    config: Config
    run: str
    draw: str
    tiers: Mapping[str, Callable[[Config], Config]] = field(default_factory=lambda: SIZES)
    groups: str = ""
    records: str = ""
    reads_inputs: bool = False
    plan: str = ""
    draws_config: bool = False

    def folder(self, name: str) -> str:
        """Return the folder of the records of this artifact, whose id is `name`."""
        return self.records or name

    def at_tier(self, tier: str, variant: Variant = DEFAULT) -> Config:
        """Return the configuration at a tier, of another data set or preset if it has them."""
        if tier not in self.tiers:
            raise unknown("--tier", tier, self.tiers)
        config = self.tiers[tier](self.config)
        return variant.apply(config, tier) if isinstance(config, ImageStudy) and variant.name else config

    @ft.cached_property
    def source(self) -> bytes:
        """The source of the experiment: its module, and the modules of experiments that it imports."""
        return b"".join(source for _, source in sorted(_sources(self.run.split(":")[0]).items()))

    def load_run(self) -> Callable[..., Any]:
        """Import and return the experiment."""
        module, function = self.run.split(":")
        return getattr(importlib.import_module(f"reproduce.experiments.{module}"), function)

    def load_groups(self) -> Callable[..., Any]:
        """Import and return what splits units into groups."""
        module, _ = self.run.split(":")
        return getattr(importlib.import_module(f"reproduce.experiments.{module}"), self.groups)

    def load_plan(self) -> Callable[..., Any]:
        """Import and return what says what units would train."""
        module, _ = self.run.split(":")
        return getattr(importlib.import_module(f"reproduce.experiments.{module}"), self.plan)

    def load_draw(self) -> Callable[..., Any]:
        """Import and return the drawing function."""
        return importlib.import_module(f"reproduce.figures.{self.draw}").draw


_TESTBED: dict[str, Any] = {"groups": "groups", "records": "testbed"}

_REPLICATION_TIERS = {"replication": TIERS["replication"]}


def _image(parts: tuple[str, ...], protocol: Protocol, records: str, draw: str, **more: Any) -> Artifact:
    """Return an image figure that shows these parts of a protocol; its records are named by the paper's data set."""
    return Artifact(
        config=ImageStudy(protocol=protocol, parts=parts, full=records),
        run="images:run",
        draw=draw,
        groups="groups",
        records=records,
        reads_inputs=True,
        plan="plan",
        **more,
    )


def _replicated(draw: str, *parts: str) -> Artifact:
    """Return a figure of the replication that shows these parts of the study."""
    return Artifact(
        config=Replication(study=Study(), parts=parts),
        run="replication:run",
        draw=draw,
        groups="groups",
        records="replication",
        reads_inputs=True,
        tiers=_REPLICATION_TIERS,
    )


_AGENTS = ("bases", "ensembles", "epinets")
_ALL_AGENTS = (*_AGENTS, "baselines")

REGISTRY: dict[str, Artifact] = {
    "fig01": Artifact(config=RabbitDuck(), run="rabbit_duck:tables", draw="fig01"),
    "fig03": Artifact(config=EnnRabbitDuck(), run="rabbit_duck:outputs", draw="fig03"),
    "fig04": Artifact(config=EpinetDiagram(), run="epinet_diagram:structure", draw="fig04"),
    "thm1": Artifact(config=MarginalsInsufficient(), run="thm1:decide", draw="thm1"),
    "thm2": Artifact(config=ShortfallBound(), run="thm2:run", draw="thm2"),
    "thm3": Artifact(config=BNNsAsENNs(), run="thm3:run", draw="thm3"),
    "thm4": Artifact(config=LinearGaussianEpinet(), run="thm4:run", draw="thm4"),
    "tab01": Artifact(config=AgentSummary(), run="agent_table:summarize", draw="tab01"),
    "fig05": Artifact(config=Scaling(), run="testbed:score", draw="fig05", **_TESTBED),
    "fig09": Artifact(config=Ablation(), run="testbed:score", draw="fig09", **_TESTBED),
    "testbed_departures": Artifact(config=Departures(), run="testbed:score", draw="testbed_departures", **_TESTBED),
    "testbed_curves": Artifact(config=Curves(), run="testbed:curves", draw="testbed_curves", groups="groups"),
    "testbed_chains": Artifact(config=Chains(), run="testbed_chains:run", draw="testbed_chains", groups="groups"),
    "fig02": _image(_AGENTS, PAIRS, "imagenet", "fig02"),
    "fig06": _image((*_ALL_AGENTS, "controls"), PAIRS, "imagenet", "fig06"),
    "fig07": _image(("grids",), PAIRS, "imagenet", "fig07"),
    "fig08": _image(("augmented", "augmented-baselines"), PAIRS, "imagenet", "fig08"),
    "fig12": _image(_AGENTS, PAIRS, "imagenet", "fig12"),
    "fig13": _image(("bases", "epinets"), PAIRS, "imagenet", "fig13"),
    "fig14": _image(("ablation",), PAIRS, "imagenet", "fig14", draws_config=True),
    "fig10": _image(_AGENTS, DIGITS, "cifar10", "fig10"),
    "fig11": _image(_AGENTS, PAIRS_FIVE, "cifar100", "fig11"),
    "rep_bank": Artifact(
        config=BankConfig(), run="replication_bank:run", draw="rep_bank", reads_inputs=True, tiers=_REPLICATION_TIERS
    ),
    "rep_scaling": _replicated("rep_scaling", "networks", "ensembles", "epinets"),
    "rep_m_curves": _replicated("rep_m_curves", "ensembles", "epinets"),
    "rep_tau_curves": _replicated("rep_tau_curves", "ensembles", "epinets"),
    "rep_controls": _replicated("rep_controls", "ensembles", "epinets", "controls"),
    "rep_ablation": _replicated("rep_ablation", "ablation"),
    "rep_dyads": _replicated("rep_dyads", "dyads"),
    "rep_human": _replicated("rep_human", "human"),
    "rep_ood": _replicated("rep_ood", "shifts"),
    "rep_active": Artifact(
        config=ActiveLearning(num_runs=8, num_rounds=14, num_steps=300, num_pool=2000, level=0.85),
        run="replication_active:run",
        draw="dec_active",
        groups="groups",
        reads_inputs=True,
        tiers=_REPLICATION_TIERS,
    ),
    "dec_active": Artifact(config=ActiveLearning(), run="active:run", draw="dec_active", groups="groups"),
    "dec_thesis": Artifact(config=Thesis(), run="thesis:run", draw="dec_thesis", groups="groups"),
    "dec_sets": Artifact(config=Sets(), run="sets:run", draw="dec_sets", groups="groups"),
    "dec_bandits": Artifact(config=Bandits(), run="bandits:run", draw="dec_bandits", groups="groups"),
    "dec_fashion": Artifact(
        config=Bandits(
            bandits=("fashion",),
            matched=(),
            with_rules=(),
            size=BanditSize(num_steps=1000, num_runs=10, pooling=4, batch_size=32),
        ),
        run="bandits_fashion:run",
        draw="dec_bandits",
        groups="groups",
        reads_inputs=True,
        tiers=_REPLICATION_TIERS,
    ),
}
