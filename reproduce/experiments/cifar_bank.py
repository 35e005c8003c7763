"""Real CIFAR-10 from the bank: single networks, deep ensembles, epinets on frozen networks, and the Pitman-Yor head.

Five folds: an epinet is fitted and a temperature chosen on four of them and judged on the fifth, so every test image is
judged once. What fitting on the bank's training images gives, as the paper does it, are rows of their own.
"""

import functools as ft
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from epinet_eqx import count_parameters, named_keys
from epinet_eqx.losses import Batch
from epinet_eqx.networks import cifar_resnet

from ..configs.cifar_bank import CifarScaling, CifarScalingPart
from ..record import Row
from .banked import Split, bank_of, build_epinet, judged_rows, pitman_yor_rows, train_epinet
from .scoring import StoredParticles, particles_batch

NUM_IMAGES = 10_000


def batch_of(network: str, split: str = "test") -> Batch:
    """Return the stored outputs of a network."""
    return bank_of("cifar10", network).as_batch(split)


def depth_of(network: str) -> int:
    """Return the depth that a network's name has."""
    return int(network.removeprefix("resnet").partition("_")[0])


@ft.cache
def network_parameters(depth: int) -> int:
    """Return the number of parameters of a ResNet; none is made."""
    network, _ = eqx.filter_eval_shape(lambda: cifar_resnet(depth, key=jr.key(0)))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(network) if isinstance(leaf, jax.ShapeDtypeStruct))


def about(network: str, agent: str) -> dict[str, Any]:
    """Return what rows say of an agent that is one network."""
    depth = depth_of(network)
    return {"agent": agent, "network": network, "size": depth, "parameters": network_parameters(depth)}


def subsets(total: int, size: int, count: int, *, key: PRNGKeyArray) -> list[Int[np.ndarray, " size"]]:
    """Return random subsets of particles; one if it is all of them."""
    if size == total:
        return [np.arange(total)]
    orders = [np.asarray(jr.permutation(jr.fold_in(key, number), total)) for number in range(count)]
    return [np.sort(order[:size]) for order in orders]


def _networks(study: CifarScaling, split: Split, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return every single network, as it is and with the Pitman-Yor head."""
    rows = []
    for depth, _ in study.networks.sizes:
        for name in study.networks.names(depth):
            stored = batch_of(name)
            data = particles_batch([stored])
            one = StoredParticles(1)
            rows += judged_rows(split, data, lambda *_, one=one: one, counts=(1,), key=key, **about(name, "resnet"))
            rows += pitman_yor_rows(split, stored, alphas=(study.alpha,), **about(name, "pitman-yor"))
    return rows


def particles_of(networks: Sequence[str]) -> Batch:
    """Return the stored logits of several networks side by side."""
    return particles_batch([batch_of(name) for name in networks])


def _ensembles(study: CifarScaling, split: Split, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return deep ensembles of every size, of random subsets of the networks."""
    rows = []
    depth, _ = study.networks.sizes[0]
    everything = particles_of(study.networks.names(depth))
    total = everything.x.shape[1]
    for size in study.ensemble_sizes:
        enn = StoredParticles(size)
        for number, own in enumerate(subsets(total, size, study.num_subsets, key=jr.fold_in(key, size))):
            data = Batch(everything.x[:, own], everything.y, everything.i)
            told = {"agent": "ensemble", "network": f"subset_{number:02d}", "size": size}
            told["parameters"] = size * network_parameters(depth)
            rows += judged_rows(split, data, lambda *_, enn=enn: enn, counts=(1,), key=key, **told)
    return rows


def _epinets(study: CifarScaling, split: Split, network: str, key: PRNGKeyArray) -> list[Row]:
    """Return the epinets of both presets on one network, fitted on other folds and on training images."""
    rows = []
    test, train = batch_of(network), batch_of(network, "train")
    example = {name: jnp.asarray(leaf[0]) for name, leaf in test.x.items()}
    for name, recipe in study.recipes:
        fit_key, train_key, index_key = named_keys(key, f"{name} fit", f"{name} train", f"{name} indices")
        added = count_parameters(build_epinet(example, recipe, key=fit_key))
        told = about(network, "epinet")
        told = {**told, "parameters": told["parameters"] + added, "recipe": name}
        shared = {"counts": (study.num_samples,), "key": index_key, **told}

        def on_folds(fold, parts, recipe=recipe, fit_key=fit_key):
            return train_epinet(parts.training, recipe, key=jr.fold_in(fit_key, fold))

        rows += judged_rows(split, test, on_folds, fitted="folds", **shared)
        whole = train_epinet(train, recipe, key=train_key)
        rows += judged_rows(split, test, lambda *_, whole=whole: whole, fitted="train", **shared)
    return rows


_PARTS: dict[str, Callable[[CifarScaling, Split, str, PRNGKeyArray], list[Row]]] = {
    "networks": _networks,
    "ensembles": _ensembles,
    "epinets": _epinets,
}


def groups(configs: Mapping[str, Any]) -> list[list[str]]:
    """Return each unit alone; all have the key of the artifact, and so the same split of the images."""
    return [[name] for name in configs]


def rows_of(
    configs: Sequence[Any], parts: Mapping[str, Callable[..., list[Row]]], split: Any, *, key: PRNGKeyArray
) -> list[list[Row]]:
    """Return the rows of parts of a study, each by its function of study, split, network and a key of its own."""
    found = []
    for config in configs:
        (own_key,) = named_keys(key, f"{config.part} {config.network}")
        found.append(parts[config.part](config.study, split, config.network, own_key))
    return found


def run(configs: Sequence[CifarScalingPart], *, key: PRNGKeyArray) -> list[list[Row]]:
    """Return the rows of parts of the study."""
    fold_key, own_key = named_keys(key, "folds", "own")
    return rows_of(configs, _PARTS, Split(configs[0].study.folds, NUM_IMAGES, key=fold_key), key=own_key)
