"""The epinet on the first network of the ImageNet bank with both of the paper's priors: conv nets read the pixels.

Folds, recipe, keys and scoring are those of Figure 14, so an epinet whose conv prior has scale 0 is its default.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.combinators import Prior
from epinet_eqx.data import IMAGENET_NORMALIZATION
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import Batch

from ..banks import decoded_batches, imagenet_splits
from ..configs.imagenet import ConvRun
from ..inputs import Inputs
from .banked import Parts, Row, Split, bank_of, judged_rows, train_epinet
from .heads import StoredBasis, conv_networks

_IMAGE = (3, 224, 224)


def conv_basis(
    config: ConvRun, folder: pathlib.Path, data: Batch, *, key: PRNGKeyArray
) -> Float[np.ndarray, "images index classes"]:
    """Return what each conv net says of each image.

    Args:
        config: the conv nets.
        folder: the images.
        data: the stored outputs of the same images in the same order.
        key: random key of the conv nets.
    """
    num_classes = data.x["logits"].shape[1]
    networks = conv_networks(_IMAGE, config.recipe.index_dim, num_classes, **dataclasses.asdict(config.conv), key=key)
    embed = jax.jit(jax.vmap(networks.embed))
    found, labels = [], []
    for pixels, y in decoded_batches(imagenet_splits(folder)["val"]):
        found.append(np.asarray(embed(jnp.asarray(IMAGENET_NORMALIZATION(pixels)))))
        labels.append(y)
    y = np.concatenate(labels)
    if not np.array_equal(y, np.asarray(data.y)):
        raise ValueError(
            f"`--data-dir` must hold the {len(data.y)} images of the bank in its order; got {len(y)} images of "
            f"{str(folder)!r} whose labels are others."
        )
    return np.concatenate(found)


def run(config: ConvRun, *, inputs: Inputs, key: PRNGKeyArray) -> list[Row]:
    """Return the rows of epinets at temperature 1, for each scale of the conv prior."""
    folder = inputs.require("data_dir", expected="val_0.npz, ... and train_like.npz, images of ImageNet")
    (conv_key,) = named_keys(key, "conv prior")
    # Those of Figure 14.
    init_key, test_key = named_keys(jr.key(0), "epinet", "indices")
    stored = bank_of("imagenet", config.network).as_batch("val")
    split = Split(config.folds, len(stored.y), key=jr.key(0))
    basis = conv_basis(config, folder, stored, key=conv_key)
    data = Batch({**stored.x, "conv": basis}, stored.y, stored.i)
    term = StoredBasis(GaussianIndex(config.recipe.index_dim))

    def rows(scale: float) -> list[Row]:
        def make(fold: int, parts: Parts) -> AbstractENN:
            priors = (Prior(term, jnp.asarray(scale)),)
            return train_epinet(parts.training, config.recipe, priors=priors, key=jr.fold_in(init_key, fold))

        return judged_rows(
            split,
            data,
            make,
            counts=(config.num_samples,),
            tuned=False,
            num_folds=config.num_folds,
            key=test_key,
            agent="epinet",
            row="conv prior scale",
            value=scale,
        )

    return [row for scale in config.scales for row in rows(scale)]
