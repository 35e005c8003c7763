"""Experiments on shipped banks: folds of the stored images, epinets on stored outputs, and rows of losses per block.

Nothing is chosen on the images that it is judged on. A row is a mean over one block of images, and agents are compared
block by block (`reproduce.stats.BLOCKS`).
"""

import functools as ft
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.combinators import Prior
from epinet_eqx.data import PackedBank, stored_base
from epinet_eqx.epinet import Epinet, attach
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.pitman_yor import logits_log_losses
from epinet_eqx.training import fit

from ..banks import open_shipped
from ..configs.banked import Folds, StoredEpinet
from .scoring import TAU, choose_temperature, draws_of, losses_of, values_at

Row = dict[str, Any]


@ft.cache
def bank_of(dataset: str, name: str) -> PackedBank:
    """Return a shipped bank, which a process reads once."""
    return open_shipped(dataset, name)


class Parts(NamedTuple):
    """The images of one fold: those to train on, those to choose a temperature on, and those that are judged."""

    training: Batch
    tuning: Batch
    test: Batch


class Chosen(NamedTuple):
    """An ENN and its temperature, both chosen on images that are not judged; `about` is what rows say of the choice."""

    enn: AbstractENN
    temperature: float
    about: Mapping[str, Any] = MappingProxyType({})


class Split:
    """The folds of a number of images, the same for all networks and seeds."""

    def __init__(self, folds: Folds, num_images: int, *, key: PRNGKeyArray):
        """Initialize; consecutive images of a fold are the pairs of dyadic losses.

        Args:
            folds: how many folds, and what is kept for choosing.
            num_images: number of images.
            key: random key of the order.
        """
        self.folds = folds
        order = np.asarray(jr.permutation(key, num_images))[: folds.limit]
        # Blocks are of whole pairs.
        unit = 2 * folds.blocks_per_fold
        size = len(order) // folds.num_folds // unit * unit
        self.places = [order[fold * size : (fold + 1) * size] for fold in range(folds.num_folds)]

    def parts(self, data: Batch, fold: int) -> Parts:
        """Return training, tuning and test images of a fold."""
        rest = np.concatenate([own for place, own in enumerate(self.places) if place != fold])
        tuning = min(self.folds.num_tuning, len(rest) // 4 // 2 * 2)
        chosen = (rest[tuning:], rest[:tuning], self.places[fold])
        return Parts(*(jax.tree.map(lambda leaf, own=own: leaf[own], data) for own in chosen))


def cooled(data: Batch, temperature: float) -> Batch:
    """Return stored outputs with logits divided by a temperature."""
    if temperature == 1.0:
        return data
    return Batch({**data.x, "logits": data.x["logits"] / np.float32(temperature)}, data.y, data.i)


@ft.cache
def _optimizer(learning_rate: float, num_steps: int) -> optax.GradientTransformation:
    """Return the optimizer of epinets, one object per setting."""
    return optax.sgd(optax.cosine_decay_schedule(learning_rate, num_steps), momentum=0.9, nesterov=True)


def build_epinet(example: Any, recipe: StoredEpinet, *, priors: tuple[Prior, ...] = (), key: PRNGKeyArray) -> Epinet:
    """Return an untrained epinet on stored outputs.

    Args:
        example: one input, logits and features.
        recipe: the epinet.
        priors: priors beside the matched one.
        key: random key.
    """
    return attach(
        stored_base,
        index_dim=recipe.index_dim,
        hidden=recipe.hidden,
        prior_scale=jnp.asarray(recipe.prior_scale),
        priors=priors,
        example=example,
        key=key,
    )


def train_epinet(data: Batch, recipe: StoredEpinet, *, priors: tuple[Prior, ...] = (), key: PRNGKeyArray) -> Epinet:
    """Return an epinet that is trained on stored outputs, already `cooled` by the recipe's temperature."""
    build_key, fit_key = named_keys(key, "build", "fit")
    example = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), data.x)
    enn = build_epinet(example, recipe, priors=priors, key=build_key)
    if recipe.num_steps == 0:
        return enn
    trained = fit(
        enn,
        data,
        CrossEntropy(l2=recipe.l2, label_smoothing=recipe.label_smoothing),
        num_steps=recipe.num_steps,
        batch_size=min(recipe.batch_size, len(data.y)),
        optimizer=_optimizer(recipe.learning_rate, recipe.num_steps),
        num_index_samples=recipe.num_index_samples,
        progress=False,
        key=fit_key,
    ).enn
    assert isinstance(trained, Epinet)
    return trained


def block_means(values: Float[np.ndarray, "... values"], blocks: int) -> Float[np.ndarray, "... blocks"]:
    """Return means over consecutive blocks of equal length."""
    return values.reshape(*values.shape[:-1], blocks, -1).mean(axis=-1)


def block_rows(
    values: dict[str, Float[np.ndarray, "counts values"]],
    counts: Sequence[float],
    *,
    fold: int,
    blocks: int,
    exact: bool,
    **about: Any,
) -> list[Row]:
    """Return a row for each number of indices and block of a fold.

    Args:
        values: error and marginal loss of each image, joint loss of each pair.
        counts: the numbers of indices.
        fold: number of the fold.
        blocks: number of blocks.
        exact: whether the average over the index is exact.
        about: further columns.
    """
    means = {name: block_means(np.asarray(own, np.float64), blocks) for name, own in values.items()}
    return [
        {
            **about,
            "block": fold * blocks + block,
            "num_samples": count,
            "exact": exact,
            **{name: float(own[place, block]) for name, own in means.items()},
        }
        for place, count in enumerate(counts)
        for block in range(blocks)
    ]


def judged_rows(
    split: Split,
    data: Batch,
    make: Callable[[int, Parts], AbstractENN | Chosen],
    *,
    counts: tuple[int, ...],
    fixed: tuple[float, ...] = (1.0,),
    tuned: bool = True,
    num_folds: int | None = None,
    key: PRNGKeyArray,
    **about: Any,
) -> list[Row]:
    """Return the rows of an agent on all folds: at given temperatures, and at the one chosen on other folds.

    Args:
        split: the folds.
        data: all images.
        make: returns the ENN of a fold, from its number and its images; it must not look at `test`. One that is
            `Chosen` is judged at its own temperature only.
        counts: numbers of indices M, increasing.
        fixed: temperatures that are judged as they are.
        tuned: whether the temperature that is best on the tuning images is judged, too.
        num_folds: how many of the folds are judged; None for all.
        key: random key of the indices.
        about: further columns.
    """
    rows, folds = [], split.folds
    for fold in range(folds.num_folds if num_folds is None else num_folds):
        parts = split.parts(data, fold)
        enn, made = make(fold, parts), {}
        tuning_key, test_key = named_keys(jr.fold_in(key, fold), "tuning", "test")
        temperatures, given = list(fixed), len(fixed)
        if isinstance(enn, Chosen):
            enn, temperature, made = enn
            temperatures, given = [temperature], 0
        elif tuned:
            draws = draws_of(enn, folds.tuning_samples, key=tuning_key, chunk_size=folds.chunk_size)
            temperatures.append(choose_temperature(enn, [parts.tuning], draws, folds.temperatures))
        draws = draws_of(enn, counts[-1], key=test_key, chunk_size=folds.chunk_size)
        found = losses_of(enn, [parts.test], draws, temperatures=temperatures, counts=counts)
        for place, temperature in enumerate(temperatures):
            rows += block_rows(
                values_at(found, place),
                found.sample_counts,
                fold=fold,
                blocks=folds.blocks_per_fold,
                exact=found.exact,
                **about,
                **made,
                tuned=place == given,
                temperature=temperature,
            )
    return rows


def pitman_yor_rows(split: Split, data: Batch, *, alphas: tuple[float, ...], **about: Any) -> list[Row]:
    """Return the rows of the Pitman-Yor head in closed form, at given aleatoric shares.

    Its temperature is the one with the lowest marginal loss on all images of the other folds. The share is not chosen:
    labels that never change say nothing about it, and the smallest one has the lowest joint loss.
    """
    rows = []
    blocks = split.folds.blocks_per_fold
    for fold in range(split.folds.num_folds):
        parts = split.parts(data, fold)
        logits, y = (jnp.concatenate(pair) for pair in zip(*(_labeled(part) for part in parts[:2]), strict=True))
        marginal = [
            logits_log_losses(logits, y, alpha=1.0, temperature=temperature, tau=TAU).marginal.mean
            for temperature in split.folds.temperatures
        ]
        temperature = split.folds.temperatures[int(np.argmin(marginal))]
        for alpha in alphas:
            found = logits_log_losses(*_labeled(parts.test), alpha=alpha, temperature=temperature, tau=TAU)
            named = {"error": found.error, "marginal": found.marginal, "joint": found.joint}
            values = {name: np.asarray(own.values)[None] for name, own in named.items() if own is not None}
            chosen = {"alpha": alpha, "tuned": True, "temperature": temperature}
            rows += block_rows(values, (1,), fold=fold, blocks=blocks, exact=True, **about, **chosen)
    return rows


def _labeled(data: Batch) -> tuple[Array, Array]:
    """Return stored logits with their labels."""
    return data.x["logits"], data.y
