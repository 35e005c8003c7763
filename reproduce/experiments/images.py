"""The image protocols: base networks, ensembles, epinets, baselines, ablations, on one data set (Section 6, App. G)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import AbstractENN, Tempered
from epinet_eqx.data import AugmentedDyads
from epinet_eqx.metrics import joint_log_loss

from ..configs.images import EpinetRecipe, Part, changed
from ..record import Row
from .image_baselines import BASELINES, train_baseline
from .image_data import Shift
from .image_lab import Lab
from .image_scores import is_finite, score

Rows = list[dict[str, Any]]

_FAMILIES = ("bases", "ensembles", "epinets", "baselines")
_NUM_SHOWN = 4


def groups(configs: Mapping[str, Part]) -> list[list[str]]:
    """Return the parts of one seed together: they share their networks, each of which is trained once."""
    found: dict[Any, list[str]] = {}
    for name, config in configs.items():
        found.setdefault((config.protocol, config.seed), []).append(name)
    return list(found.values())


def _agents(lab: Lab, family: str) -> Iterator[tuple[str, int, AbstractENN]]:
    """Yield name, size and ENN of the agents of a family."""
    protocol = lab.protocol
    if family == "bases":
        yield from (("resnet", size, lab.deterministic(size)) for size in protocol.sizes)
    elif family == "ensembles":
        yield from (("ensemble", size, lab.ensemble(size)) for size in protocol.ensemble_sizes)
    elif family == "epinets":
        yield from (("epinet", size, lab.default_epinet(size)) for size in protocol.sizes)
    else:
        yield from ((name, protocol.sizes[0], lab.baseline(name, train_baseline)) for name in BASELINES)


def _scores(lab: Lab, family: str) -> Rows:
    """Return the rows of a family, computed once."""
    if family not in lab.scored:
        agents = _agents(lab, family)
        lab.scored[family] = [row for agent, size, enn in agents for row in score(lab, agent, size, enn)]
    return lab.scored[family]


def _controls(lab: Lab) -> Rows:
    """Return the epinet without a prior, and a deterministic head of its capacity."""
    size, recipe = lab.protocol.sizes[0], lab.protocol.epinet
    without = lab.epinet(size, replace(recipe, matched_scale=0.0, conv_scale=0.0))
    rows = score(lab, "epinet without prior", size, without, curve=False)
    return rows + score(lab, "deterministic head", size, lab.head(size))


def _ablation(lab: Lab) -> Rows:
    """Return epinets on the smallest base, one factor at a time; none is tuned, so that the factor alone acts."""
    size, recipe = lab.protocol.sizes[0], lab.protocol.epinet

    def trained(row: str, other: EpinetRecipe) -> AbstractENN:
        # A temperature needs no training of its own.
        if row == "temperature":
            return Tempered(lab.default_epinet(size), other.temperature)
        return lab.epinet(size, other)

    variants = [("default", 0.0, lab.default_epinet(size))]
    for row, values in lab.protocol.ablation:
        variants += [(row, value, trained(row, changed(recipe, row, value))) for value in values]
    found = [
        score(lab, "epinet", size, enn, tuned=False, curve=False, row=row, value=value) for row, value, enn in variants
    ]
    return [row for rows in found for row in rows]


def _augmented(lab: Lab) -> Rows:
    """Return the joint loss under plain and under augmented dyadic sampling of the first pairs."""
    protocol = lab.protocol
    dyads = AugmentedDyads(lab.data.test, transforms=(Shift(),), key=lab.key_of("augmented"))
    drawn = [dyads[number] for number in range(min(protocol.num_augmented, len(dyads)))]
    xs = np.concatenate([group["x"].reshape(len(group["y"]), -1) for group in drawn])
    ys = np.concatenate([group["y"] for group in drawn])
    rows = []
    for family in _FAMILIES:
        known = {(row["agent"], row["size"]): row for row in _scores(lab, family) if _is_shown(lab, row)}
        for agent, size, enn in _agents(lab, family):
            plain = known[agent, size]
            num_samples = None if is_finite(enn) else protocol.num_samples
            key = None if is_finite(enn) else lab.key_of("indices", shared=True)
            tempered = Tempered(enn, plain["temperature"])
            found = joint_log_loss(tempered, xs, ys, tau=10, num_samples=num_samples, key=key)
            result = {"augmented": float(found.mean), "augmented_error": float(found.standard_error)}
            rows.append({**plain, **result})
    return rows


def _is_shown(lab: Lab, row: Mapping[str, Any]) -> bool:
    """Return whether a row is at the figures' number of indices, or exact."""
    return row["exact"] or row["num_samples"] == lab.protocol.num_samples


def _grids(lab: Lab) -> Rows:
    """Return the pixels of some dyadic batches, plain and augmented, from black to white in 99 steps."""
    rows = []
    for kind, transforms in (("dyadic", ()), ("augmented", (Shift(),))):
        dyads = AugmentedDyads(lab.data.test, transforms=transforms, key=lab.key_of("grids"))
        for number in range(_NUM_SHOWN):
            group = dyads[number]
            for place, (image, label) in enumerate(zip(group["x"], group["y"], strict=True)):
                levels = np.rint(99 * np.clip(image[0], 0, 1)).astype(int)
                text = "/".join(" ".join(map(str, line)) for line in levels)
                rows.append(
                    {
                        "seed": lab.seed,
                        "kind": kind,
                        "batch": number,
                        "place": place,
                        "label": int(label),
                        "pixels": text,
                    }
                )
    return rows


_PARTS: dict[str, Callable[[Lab], Rows]] = {
    **{family: (lambda lab, family=family: _scores(lab, family)) for family in _FAMILIES},
    "controls": _controls,
    "augmented": _augmented,
    "ablation": _ablation,
    "grids": _grids,
}


def run(configs: Sequence[Part], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the rows of the parts of one seed."""
    lab = Lab(protocol=configs[0].protocol, seed=configs[0].seed, key=key)
    return [[{"part": config.part, **row} for row in _PARTS[config.part](lab)] for config in configs]
