"""Joint predictions of different images of real CIFAR-10: what they add to the product of marginals, on near pairs.

A pair are two images that are each other's nearest neighbor in the features of a network that is no base of any agent.
As a control, each first image is paired with the second one of another pair.
"""

import functools as ft
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import AbstractENN, Draws, named_keys
from epinet_eqx.losses import Batch
from epinet_eqx.metrics import joint_gain, near_pairs

from ..configs.cifar_head import NearImages, NearPart
from ..record import Row
from .banked import block_means, cooled, train_epinet
from .cifar_bank import about, batch_of, network_parameters, particles_of, rows_of
from .cifar_bank import groups as groups
from .cifar_head import Halved, best_marginal, field_head
from .scoring import StoredParticles, choose_temperature, draws_of

Agent = tuple[dict[str, Any], AbstractENN, Batch, Draws]


def near_images(study: NearImages, halved: Halved) -> dict[str, np.ndarray]:
    """Return the positions of judged images, two by two: nearest neighbors, and the same images paired otherwise."""
    features = np.asarray(batch_of(study.metric_network).x["features"])[halved.test]
    pairs = near_pairs((features - features.mean(axis=0)) / features.std(axis=0))
    # Blocks have as many pairs each.
    pairs = halved.test[pairs[: len(pairs) // study.halves.blocks * study.halves.blocks]]
    moved = np.stack([pairs[:, 0], np.roll(pairs[:, 1], 1)], axis=1)
    return {"nearest": pairs.reshape(-1), "other": moved.reshape(-1)}


def _ensembles(study: NearImages, halved: Halved, network: str, key: PRNGKeyArray) -> Iterator[Agent]:
    """Yield deep ensembles of the first networks, at the temperature that was chosen."""
    depth, _ = study.networks.sizes[0]
    for size in study.ensemble_sizes:
        enn = StoredParticles(size)
        draws = Draws.all(enn.index)
        data = particles_of(study.networks.names(depth)[:size])
        best = choose_temperature(enn, [halved.parts(data).tuning], draws, study.halves.temperatures)
        told = {"network": f"first_{size}", "size": size, "parameters": size * network_parameters(depth)}
        yield {"agent": f"ensemble of {size}", **told}, enn, Batch(data.x / best, data.y, data.i), draws


def _agents(study: NearImages, halved: Halved, network: str, key: PRNGKeyArray) -> Iterator[Agent]:
    """Yield the epinets and the fields on one network: its own temperature is the one with the best marginals."""
    data = batch_of(network)
    for name, recipe in study.recipes:
        fit_key, index_key = named_keys(key, f"{name} fit", f"{name} indices")
        enn = train_epinet(batch_of(network, "train"), recipe, key=fit_key)
        told = {**about(network, f"epinet, {name}"), "recipe": name}
        yield told, enn, data, draws_of(enn, study.num_samples, key=index_key)
    tuning = halved.parts(data).tuning
    tempered = cooled(data, best_marginal(tuning, study.halves.temperatures))
    for length_scale in study.length_scales:
        field_key, index_key = named_keys(key, f"field {length_scale}", f"indices {length_scale}")
        enn = field_head(tuning, study.alpha, length_scale, key=field_key)
        told = {**about(network, f"field, {length_scale:g}"), "length_scale": length_scale}
        yield told, enn, tempered, draws_of(enn, study.num_samples, key=index_key)


_AGENTS: dict[str, Callable[[NearImages, Halved, str, PRNGKeyArray], Iterator[Agent]]] = {
    "ensembles": _ensembles,
    "agents": _agents,
}


def _rows(part: str, study: NearImages, halved: Halved, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return the joint gain of each agent of a part on each kind of pair, a row for each block of pairs."""
    y = np.asarray(batch_of(study.metric_network).y)
    images = near_images(study, halved)
    rows: list[Row] = []
    for told, enn, data, draws in _AGENTS[part](study, halved, network, key):
        for kind, places in images.items():
            own = jax.tree.map(lambda leaf, places=places: leaf[places], data)
            gain = np.asarray(joint_gain(enn, own.x, own.y, draws).values, np.float64)
            same = y[places[0::2]] == y[places[1::2]]
            means = zip(*(block_means(values, study.halves.blocks) for values in (gain, same)), strict=True)
            rows += [
                {**told, "pairs": kind, "num_pairs": len(gain), "block": block, "gain": mean, "same_class": share}
                for block, (mean, share) in enumerate((float(a), float(b)) for a, b in means)
            ]
    return rows


_PARTS = {part: ft.partial(_rows, part) for part in _AGENTS}


def run(configs: Sequence[NearPart], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the rows of parts of the study."""
    split_key, own_key = named_keys(key, "split", "own")
    return rows_of(configs, _PARTS, Halved(configs[0].study.halves, key=split_key), key=own_key)
