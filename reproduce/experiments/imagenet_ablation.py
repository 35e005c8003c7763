"""The epinet on the first network of the ImageNet bank, one hyperparameter at a time (Appendix G.5)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.random as jr
from jaxtyping import PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.losses import Batch

from ..configs.banked import StoredEpinet
from ..configs.imagenet import BankPart
from .banked import Parts, Row, Split, judged_rows, train_epinet

_FIELDS: Mapping[str, tuple[str, Callable[[float, StoredEpinet], Any]]] = {
    "index dimension": ("index_dim", lambda value, _: int(value)),
    "hidden layers": ("hidden", lambda value, recipe: recipe.hidden[:1] * int(value)),
    "matched prior scale": ("prior_scale", lambda value, _: value),
    "L2 decay": ("l2", lambda value, _: value),
    "index samples": ("num_index_samples", lambda value, _: int(value)),
    "label smoothing": ("label_smoothing", lambda value, _: value),
}
"""The field of a recipe that each row of Figure 14 changes; a temperature changes none."""


def changed(recipe: StoredEpinet, row: str, value: float) -> StoredEpinet:
    """Return a recipe with another value of one factor."""
    name, convert = _FIELDS[row]
    return dataclasses.replace(recipe, **{name: convert(value, recipe)})


def ablation_rows(config: BankPart, split: Split, data: Batch, *, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of epinets at temperature 1, so that the factor alone acts.

    Args:
        config: its part names the factor; "default" is the recipe itself, at all temperatures.
        split: the folds.
        data: the stored outputs of all images.
        key: random key, the same for all factors.
    """
    bank, ablation = config.bank, config.bank.ablation
    factor = config.part.partition("-")[2].replace("_", " ")
    init_key, test_key = named_keys(key, "epinet", "indices")

    def rows(row: str, value: float, recipe: StoredEpinet, fixed: tuple[float, ...]) -> list[Row]:
        def make(fold: int, parts: Parts) -> Any:
            return train_epinet(parts.training, recipe, key=jr.fold_in(init_key, fold))

        found = judged_rows(
            split,
            data,
            make,
            counts=(ablation.num_samples,),
            fixed=fixed,
            tuned=False,
            num_folds=ablation.num_folds,
            key=test_key,
            agent="epinet",
        )
        return [{"row": row, "value": value, **own} for own in found]

    if factor != "default":
        return [
            found
            for value in ablation.values[factor]
            for found in rows(factor, value, changed(bank.recipe, factor, value), (1.0,))
        ]
    temperatures = (1.0, *ablation.values["temperature"])
    found = rows("default", 0.0, bank.recipe, temperatures)
    return [
        own if own["temperature"] == 1.0 else {**own, "row": "temperature", "value": own["temperature"]}
        for own in found
    ]
