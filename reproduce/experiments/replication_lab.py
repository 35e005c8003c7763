"""What the replication trains and judges on: stored features, split into parts for training, choosing and judging."""

import dataclasses
import functools as ft
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float, Int, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.combinators import Prior
from epinet_eqx.data import IMAGENET_NORMALIZATION, stored_base
from epinet_eqx.epinet import Epinet, attach
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.training import EpochBatches, fit

from ..configs.replication import BankConfig, Piece, Recipe
from ..inputs import Inputs
from .heads import StoredBasis, conv_networks
from .replication_bank import LAST, bank_key, features_of
from .replication_images import images_of

Tree = dict[str, np.ndarray]
_NUM_CLASSES = 10
_IMAGE = (3, 32, 32)


@dataclasses.dataclass(frozen=True)
class Split:
    """The test images: a part on which everything is chosen, and the rest, on which everything is judged."""

    tuning: Int[np.ndarray, " images"]
    evaluation: Int[np.ndarray, " images"]


@ft.cache
def _optimizer(name: str, learning_rate: float, num_steps: int) -> optax.GradientTransformation:
    """Return an optimizer, one object per setting, since compiled loops are found again by it."""
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps)
    return optax.sgd(schedule, momentum=0.9, nesterov=True) if name == "sgd" else optax.adam(schedule)


class Lab:
    """Stored features by network, and epinets that are trained on them."""

    def __init__(self, bank: BankConfig, num_tuning: int, *, inputs: Inputs, key: PRNGKeyArray):
        """Initialize; nothing is read yet.

        Args:
            bank: what is stored.
            num_tuning: number of test images on which everything is chosen.
            inputs: the folders.
            key: random key.
        """
        self.bank = bank
        self.inputs = inputs
        self.key = key
        (split_key,) = named_keys(key, "split")
        order = np.asarray(jr.permutation(split_key, bank.num_test))
        self.split = Split(np.sort(order[:num_tuning]), np.sort(order[num_tuning:]))
        self._pieces: dict[tuple[str, str], Tree] = {}
        self._conv: dict[tuple[str, int], np.ndarray] = {}

    def key_of(self, name: str) -> PRNGKeyArray:
        """Return the key of a part."""
        (key,) = named_keys(self.key, name)
        return key

    def piece(self, network: str, images: str) -> Tree:
        """Return logits, features and labels of images by a network."""
        if (network, images) not in self._pieces:
            piece = Piece(network=network, images=images, num_images=self.bank.num_images(images))
            self._pieces[network, images] = features_of(piece, inputs=self.inputs)
        return self._pieces[network, images]

    def labels(self, images: str) -> Int[np.ndarray, " images"]:
        """Return the labels of images."""
        return self.piece(self.bank.networks[0].names("test")[0], images)["y"]

    def particles(self, networks: Sequence[str], images: str) -> Float[np.ndarray, "images particles classes"]:
        """Return the logits of several networks side by side."""
        return np.stack([self.piece(network, images)["logits"] for network in networks], axis=1)

    def base_temperature(self, network: str) -> float:
        """Return the temperature at which a network's marginal log-loss is smallest on the tuning part."""
        piece = self.piece(network, "test")
        logits, y = piece["logits"][self.split.tuning], piece["y"][self.split.tuning]
        grid = np.exp(np.linspace(np.log(0.5), np.log(4.0), 106))
        scaled = logits[None] / grid[:, None, None].astype(np.float32)
        log_p = scaled - np.log(np.exp(scaled - scaled.max(-1, keepdims=True)).sum(-1, keepdims=True))
        log_p = log_p - scaled.max(-1, keepdims=True)
        own = log_p[:, np.arange(len(y)), y].mean(axis=1)
        return float(grid[np.argmax(own)])

    def conv_basis(self, images: str, index_dim: int) -> Float[np.ndarray, "images index classes"]:
        """Return the outputs of the members of a conv prior, the same one for all bases."""
        if (images, index_dim) not in self._conv:
            data = images_of(self._data_dir(), images, self.bank.num_images(images), key=bank_key())
            key = self.key_of(f"conv prior {index_dim}")
            term = conv_networks(_IMAGE, index_dim, _NUM_CLASSES, key=key)
            embed = jax.jit(jax.vmap(term.embed))
            # A prior sees what its base sees, normalized pixels; all of these bases have the same normalization.
            parts = np.array_split(data.x, -(-len(data.x) // 500))
            found = [np.asarray(embed(IMAGENET_NORMALIZATION(part))) for part in parts]
            self._conv[images, index_dim] = np.concatenate(found)
        return self._conv[images, index_dim]

    def _data_dir(self) -> Any:
        """Return the folder of the images."""
        return self.inputs.require("data_dir", expected="CIFAR-10 in its official binary or python form")

    def inputs_of(self, network: str, images: str, recipe: Recipe) -> Tree:
        """Return what an epinet of this recipe takes as its input."""
        piece = self.piece(network, images)
        features = piece["features"]
        if recipe.standardized:
            seen = self.piece(network, "train")["features"]
            features = (features - seen.mean(axis=0)) / (seen.std(axis=0) + 1e-6)
        if recipe.features == "last":
            features = features[:, -LAST:]
        if recipe.unit:
            lengths = np.linalg.norm(features, axis=1, keepdims=True)
            features = features * np.float32(math.sqrt(features.shape[1])) / lengths
        temperature = self.base_temperature(network) if recipe.tempered_base else 1.0
        found = {"logits": piece["logits"] / np.float32(temperature), "features": features}
        if recipe.conv_scale > 0:
            found["conv"] = self.conv_basis(images, recipe.index_dim)
        return found

    def training_data(self, network: str, recipe: Recipe) -> Batch:
        """Return the training examples of an epinet."""
        sets = ("train", "augmented") if recipe.augmented else ("train",)
        trees = [self.inputs_of(network, images, recipe) for images in sets]
        x = {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
        y = np.concatenate([self.piece(network, images)["y"] for images in sets])
        return Batch(x, y, np.arange(len(y), dtype=np.int32))

    def epinet(self, network: str, recipe: Recipe) -> Epinet:
        """Return an epinet on a network, trained."""
        data = self.training_data(network, recipe)
        # The first of several seeds.
        init_key, fit_key = (jr.fold_in(self.key_of(f"{network} {name}"), 0) for name in ("epinet", "training"))
        basis = Prior(StoredBasis(GaussianIndex(recipe.index_dim)), jnp.asarray(recipe.conv_scale))
        enn = attach(
            stored_base,
            out_size=_NUM_CLASSES,
            index_dim=recipe.index_dim,
            example=jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), data.x),
            hidden=recipe.hidden,
            prior_scale=jnp.asarray(recipe.prior_scale),
            priors=(basis,) if recipe.conv_scale > 0 else (),
            key=init_key,
        )
        num_steps = max(1, recipe.epochs * len(data.y) // recipe.batch_size)
        fitted = fit(
            enn,
            data,
            CrossEntropy(l2=recipe.l2, label_smoothing=recipe.label_smoothing),
            num_steps=num_steps,
            batch_size=min(recipe.batch_size, len(data.y)),
            sampling=EpochBatches,
            optimizer=_optimizer(recipe.optimizer, recipe.learning_rate, num_steps),
            num_index_samples=recipe.num_index_samples,
            progress=False,
            key=fit_key,
        ).enn
        assert isinstance(fitted, Epinet)
        return fitted


def count_parameters(enn: Epinet) -> int:
    """Return the parameters that an epinet adds to its base: the learnable ones and those of its prior networks."""
    terms = (enn.learnable, *(prior.enn.content for prior in enn.priors))
    # Of a conv prior the bank keeps what it says of images; its networks are made again to be counted.
    own = [
        conv_networks(_IMAGE, enn.index.size, _NUM_CLASSES, key=jr.key(0)) if isinstance(term, StoredBasis) else term
        for term in terms
    ]
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(own, eqx.is_inexact_array)))
