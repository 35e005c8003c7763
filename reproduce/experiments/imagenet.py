"""Real ImageNet from the bank: base networks, their ensembles, epinets and Pitman-Yor heads on stored outputs.

Epinets are fitted on validation images of other folds, since the training set is not at hand; what fitting on the
bank's training-like images gives are rows of their own.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Mapping
from typing import Any

import jax.random as jr
from jaxtyping import PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.epinet import Epinet
from epinet_eqx.losses import Batch

from ..configs.banked import StoredEpinet
from ..configs.imagenet import BankPart
from .banked import Chosen, Parts, Row, Split, bank_of, build_epinet, cooled, judged_rows, pitman_yor_rows, train_epinet
from .imagenet_ablation import ablation_rows
from .imagenet_costs import Counted, ensemble_cost, head_cost, network_cost
from .imagenet_heads import choose, head_rows
from .scoring import StoredParticles, particles_batch


def split_of(config: BankPart, num_images: int) -> Split:
    """Return the folds, the same for all units."""
    return Split(config.bank.folds, num_images, key=jr.key(0))


def data_of(network: str, split: str = "val") -> Batch:
    """Return the stored outputs of a network."""
    return bank_of("imagenet", network).as_batch(split)


def with_costs(rows: list[Row], counted: Counted, **about: Any) -> list[Row]:
    """Return rows with further columns in front, and what a prediction costs behind."""
    return [{**about, **row, **counted.columns(row["num_samples"])} for row in rows]


def _base(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of a network as it is, and of its Pitman-Yor head."""
    (name,) = config.networks
    data = data_of(name)
    split = split_of(config, len(data.y))
    stored = particles_batch([data])
    rows = judged_rows(split, stored, lambda *_: StoredParticles(1), counts=(1,), key=key, agent="resnet")
    rows += pitman_yor_rows(split, data, alphas=config.bank.alphas, agent="pitman-yor")
    return with_costs(rows, network_cost(name), network=name, members=1)


def _ensemble(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of an ensemble of networks of mixed architecture."""
    members = len(config.networks)
    data = particles_batch([data_of(name) for name in config.networks])
    split = split_of(config, len(data.y))
    rows = judged_rows(split, data, lambda *_: StoredParticles(members), counts=(members,), key=key, agent="ensemble")
    return with_costs(rows, ensemble_cost(config.networks), network="+".join(config.networks), members=members)


def epinet_cost(name: str, recipe: StoredEpinet) -> Counted:
    """Return the cost of a network with an epinet."""
    example = bank_of("imagenet", name).example()
    return head_cost(name, build_epinet(example, recipe, key=jr.key(0)), example)


def epinet_rows(
    config: BankPart,
    recipe: StoredEpinet,
    make: Callable[[int, Parts], AbstractENN | Chosen],
    *,
    key: PRNGKeyArray,
    **options: Any,
) -> list[Row]:
    """Return the rows of epinets on a network, one for each fold.

    Args:
        config: the network and the folds.
        recipe: the epinet.
        make: as for `judged_rows`.
        key: random key.
        options: of `judged_rows`.
    """
    (name,) = config.networks
    data = cooled(data_of(name), recipe.base_temperature)
    (test_key,) = named_keys(key, "indices")
    rows = judged_rows(split_of(config, len(data.y)), data, make, key=test_key, **options)
    return with_costs(rows, epinet_cost(name, recipe), network=name, members=1)


def trained(
    recipe: StoredEpinet, *, training: Batch | None = None, key: PRNGKeyArray
) -> Callable[[int, Parts], Epinet]:
    """Return what trains the epinet of a fold, by default on the images of the others."""
    (init_key,) = named_keys(key, "epinet")
    return lambda fold, parts: train_epinet(
        parts.training if training is None else training, recipe, key=jr.fold_in(init_key, fold)
    )


def _epinet(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of the paper's epinet."""
    bank = config.bank
    counts = bank.more_counts if config.networks[0] in bank.long else bank.counts
    return epinet_rows(config, bank.recipe, trained(bank.recipe, key=key), agent="epinet", counts=counts, key=key)


def _recommended(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of epinets whose prior scale and temperature are both chosen on other folds."""
    bank, (name,) = config.bank, config.networks
    data = data_of(name)
    split = split_of(config, len(data.y))

    def make(fold: int, parts: Parts) -> Chosen:
        init_key, choose_key = named_keys(jr.fold_in(key, fold), "epinet", "choose")
        recipes = [dataclasses.replace(bank.recipe, prior_scale=scale) for scale in bank.prior_scales]
        made = [train_epinet(parts.training, recipe, key=init_key) for recipe in recipes]
        samples, excess = split.folds.tuning_samples, bank.most_excess
        found = choose(made, parts.tuning, split.folds, samples, excess=excess, key=choose_key)
        (scale,) = (scale for scale, enn in zip(bank.prior_scales, made, strict=True) if enn is found.enn)
        return found._replace(about={"prior_scale": scale})

    rows = judged_rows(split, data, make, counts=bank.counts[-1:], key=key, agent="epinet, recommended")
    return with_costs(rows, epinet_cost(name, bank.recipe), network=name, members=1)


def _departures(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of the epinet with other temperatures, of one on other images, and of one without training."""
    bank, (name,) = config.bank, config.networks
    like, none = data_of(name, "train"), dataclasses.replace(bank.recipe, num_steps=0)
    at = {"fixed": (bank.released_temperature,), "tuned": False}
    rows = ft.partial(epinet_rows, config, counts=bank.counts[-1:], key=key)
    return [
        *rows(bank.released, trained(bank.released, key=key), agent="epinet, released", **at),
        *rows(bank.recipe, trained(bank.recipe, training=like, key=key), agent="epinet, training-like"),
        *rows(none, trained(none, key=key), agent="epinet, untrained"),
    ]


def _head(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of a head that an uncertainty baseline has."""
    (name,) = config.networks
    data = data_of(name)
    return head_rows(config, split_of(config, len(data.y)), data, network_cost(name).parameters, key=key)


def _ablation(config: BankPart, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of epinets that differ in one factor; all have the same initial keys."""
    (name,) = config.networks
    data = data_of(name)
    return ablation_rows(config, split_of(config, len(data.y)), data, key=jr.key(0))


_PARTS: Mapping[str, Callable[[BankPart, PRNGKeyArray], list[Row]]] = {
    "base": _base,
    "ensemble": _ensemble,
    "epinet": _epinet,
    "departures": _departures,
    "recommended": _recommended,
    "head": _head,
    "ablation": _ablation,
}


def run(config: BankPart, *, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of a part."""
    return _PARTS[config.part.partition("-")[0]](config, key)
