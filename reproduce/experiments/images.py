"""The image protocols: base networks, ensembles, epinets, baselines, ablations, on one data set (Section 6, App. G)."""

import functools as ft
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import Tempered
from epinet_eqx.metrics import joint_log_loss

from ..configs.images import Part, variants
from ..inputs import NOTHING, Inputs
from ..record import Row
from .image_agents import Agent, Backend, Seed, Trainer, run_training
from .image_baselines import BASELINES
from .image_lab import Lab
from .image_memory import MemoryBackend
from .image_pictures import KINDS, batch_rows
from .image_plan import Planned, Planner
from .image_scale import ScaleBackend
from .image_scores import score
from .scoring import TAU, draws_of, summary

Rows = list[dict[str, Any]]

_FAMILIES = ("bases", "ensembles", "epinets", "baselines")
_AUGMENTED = {"augmented": ("bases", "ensembles", "epinets"), "augmented-baselines": ("baselines",)}
# No network of these is one of the other parts'.
_ON_THEIR_OWN = ("baselines", "augmented-baselines")


def groups(configs: Mapping[str, Part]) -> list[list[str]]:
    """Return the parts of one seed together that share networks, each of which is trained once."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        found.setdefault((config.protocol, config.seed, config.part in _ON_THEIR_OWN), []).append(name)
    return list(found.values())


def _agents(lab: Lab, family: str) -> Iterator[Agent]:
    """Yield the agents of a family."""
    protocol = lab.protocol
    if family == "bases":
        yield from (lab.deterministic(size) for size in protocol.sizes)
    elif family == "ensembles":
        yield from (lab.ensemble(size) for size in protocol.ensemble_sizes)
    elif family == "epinets":
        yield from (lab.default_epinet(size) for size in protocol.sizes)
    else:
        yield from (lab.baseline(name) for name in BASELINES)


def _temperature(lab: Lab, family: str) -> float | None:
    """Return the temperature of the agents of a family if their recipe has one; else it is chosen on held-out data."""
    recipe = lab.protocol.epinet
    return recipe.temperature if family == "epinets" and not recipe.tuned else None


def _scores(lab: Lab, family: str) -> Rows:
    """Return the rows of a family, computed once."""
    if family not in lab.scored:
        temperature = _temperature(lab, family)
        lab.scored[family] = [
            row for agent in _agents(lab, family) for row in score(lab, agent, temperature=temperature)
        ]
    return lab.scored[family]


def _control_agents(lab: Lab) -> Iterator[Agent]:
    """Yield the epinet without a prior, and a deterministic head of its capacity."""
    size, recipe = lab.protocol.sizes[0], lab.protocol.epinet
    yield lab.epinet(size, replace(recipe, prior_scale=0.0, conv_scale=0.0), name="epinet without prior")
    yield lab.head(size)


def _controls(lab: Lab) -> Rows:
    """Return the rows of the controls."""
    without, head = _control_agents(lab)
    return score(lab, without, temperature=_temperature(lab, "epinets"), curve=False) + score(lab, head)


def _ablation_agents(lab: Lab) -> Iterator[tuple[str, float, Agent]]:
    """Yield epinets on the smallest base, one factor at a time."""
    size, recipe = lab.protocol.sizes[0], lab.protocol.epinet
    yield "default", 0.0, lab.default_epinet(size)
    for row, value, own in variants(recipe, lab.protocol.ablation):
        # A temperature needs no training of its own.
        yield row, value, lab.default_epinet(size) if row == "temperature" else lab.epinet(size, own)


def _ablation(lab: Lab) -> Rows:
    """Return the rows of the ablation; none is tuned, so that the factor alone acts."""
    found = []
    for row, value, agent in _ablation_agents(lab):
        own = replace(agent, enn=Tempered(agent.enn, value)) if row == "temperature" else agent
        temperature = 1.0 if row == "temperature" else lab.protocol.epinet.temperature
        found += score(lab, own, temperature=temperature, curve=False, row=row, value=value)
    return found


def _augmented(lab: Lab, families: Sequence[str]) -> Rows:
    """Return the joint loss under plain and under augmented dyadic sampling of the first pairs."""
    protocol = lab.protocol
    rows = []
    for family in families:
        known = {(row["agent"], row["size"]): row for row in _scores(lab, family) if _is_shown(lab, row)}
        for agent in _agents(lab, family):
            plain = known[agent.name, agent.size]
            tempered = Tempered(agent.enn, plain["temperature"])
            draws = draws_of(tempered, protocol.num_samples, key=lab.key_of("indices", shared=True))
            parts = [
                joint_log_loss(tempered, batch.x, batch.y, draws, tau=TAU).values
                for batch in agent.batches("augmented")
            ]
            mean, error = summary(np.concatenate(parts))
            rows.append({**plain, "augmented": mean, "augmented_error": error})
    return rows


def _is_shown(lab: Lab, row: Mapping[str, Any]) -> bool:
    """Return whether a row is at the figures' number of indices, or exact."""
    return row["exact"] or row["num_samples"] == lab.protocol.num_samples


def _grids(lab: Lab) -> Rows:
    """Return the pixels of some dyadic batches, plain and augmented."""
    number = lab.backend.seed.number
    return [row for kind in KINDS for row in batch_rows(lab.backend.pictures(kind), kind=kind, seed=number)]


_PARTS: dict[str, Callable[[Lab], Rows]] = {
    **{family: ft.partial(_scores, family=family) for family in _FAMILIES},
    **{part: ft.partial(_augmented, families=families) for part, families in _AUGMENTED.items()},
    "controls": _controls,
    "ablation": _ablation,
    "grids": _grids,
}


def _lab(config: Part, inputs: Inputs, key: PRNGKeyArray, trainer: Trainer) -> Lab:
    """Return the lab of a seed, whose backend is that of its networks."""
    seed = Seed(protocol=config.protocol, number=config.seed, key=key, inputs=inputs)
    make: Callable[[Seed, Trainer], Backend] = MemoryBackend if config.protocol.networks == "mlp" else ScaleBackend
    return Lab(backend=make(seed, trainer))


def run(configs: Sequence[Part], *, inputs: Inputs = NOTHING, key: PRNGKeyArray) -> Iterator[list[Row]]:
    """Yield the rows of the parts of one seed, each as soon as it is there."""
    lab = _lab(configs[0], inputs, key, run_training)
    for config in configs:
        yield [{"part": config.part, **row} for row in _PARTS[config.part](lab)]


def plan(configs: Sequence[Part], *, inputs: Inputs, key: PRNGKeyArray) -> list[Planned]:
    """Return what the parts of one seed would train: the same agents are asked for, and nothing is trained."""
    planner = Planner()
    lab = _lab(configs[0], inputs, key, planner)
    for config in configs:
        if config.part == "ablation":
            agents: Iterator[Any] = _ablation_agents(lab)
        elif config.part == "controls":
            agents = _control_agents(lab)
        elif config.part in _AUGMENTED:
            agents = chain.from_iterable(_agents(lab, family) for family in _AUGMENTED[config.part])
        else:
            agents = _agents(lab, config.part) if config.part in _FAMILIES else iter(())
        for _ in agents:
            pass
    return planner.trainings
