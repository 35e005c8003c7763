"""The data of the image protocols: a training set per seed, held-out data for choices, one test set."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.data import ArrayDataset, Normalization, Source, Transform, digits
from epinet_eqx.losses import Batch

from ..configs.images import Protocol
from ..inputs import Inputs
from .image_sources import Images, Prepared, Shift, open_images, share

# Digits for testing, and as many for choosing temperatures.
_NUM_HELD_OUT = 400
_NUM_PAIRS = 10_000


class Splits(NamedTuple):
    """The data of one seed."""

    train: Batch
    validation: Batch
    test: ArrayDataset
    num_classes: int
    image_shape: tuple[int, int, int]
    perturb: tuple[Transform, ...] = (Shift(),)
    normalization: Normalization | None = None

    @property
    def test_batch(self) -> Batch:
        """The test examples, an even number of them."""
        return on_device(self.test)


def on_device(data: ArrayDataset) -> Batch:
    """Return a data set as arrays of the default device, its images as vectors."""
    return Batch(jnp.asarray(data.x.reshape(len(data), -1)), jnp.asarray(data.y), jnp.asarray(data.i))


def _all_digits() -> ArrayDataset:
    """Return all digits. Their file goes from writer to writer, so splits of it are drawn at random."""
    parts = [digits("train"), digits("test")]
    x, y, i = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "i"))
    return ArrayDataset(x, y, i, 10, "digits")


def _pairs(single: ArrayDataset, num_pairs: int, *, key: PRNGKeyArray) -> ArrayDataset:
    """Return pairs of digits side by side, drawn with replacement: images of 8 x 16 pixels, of 100 classes."""
    left, right = np.asarray(jr.randint(key, (2, num_pairs), 0, len(single)))
    x = np.concatenate([single.x[left], single.x[right]], axis=3)
    return ArrayDataset(x, 10 * single.y[left] + single.y[right], np.arange(num_pairs, dtype=np.int32), 100, "pairs")


def _digit_splits(protocol: Protocol, seed: int, *, key: PRNGKeyArray) -> Splits:
    """Return digits, or pairs of them; which digits are for testing is the same for all seeds."""
    (split_key,) = named_keys(key, "split")
    train_key, validation_key, test_key = named_keys(jr.fold_in(key, seed), "train", "validation", "test")
    singles = _all_digits()
    order = np.asarray(jr.permutation(split_key, len(singles)))
    held_out, fitted = singles.take(order[: 2 * _NUM_HELD_OUT]), singles.take(order[2 * _NUM_HELD_OUT :])
    test, validation = held_out.take(slice(0, _NUM_HELD_OUT)), held_out.take(slice(_NUM_HELD_OUT, None))
    if protocol.dataset == "digit_pairs":
        # Pairs can be drawn without end: how many there are is up to the protocol.
        train = _pairs(fitted, protocol.num_train or _NUM_PAIRS, key=train_key)
        validation = _pairs(validation, protocol.num_validation, key=validation_key)
        test = _pairs(test, protocol.num_test or _NUM_PAIRS, key=test_key)
    else:
        chosen = np.asarray(jr.permutation(train_key, len(fitted)))[: protocol.num_train]
        train = fitted.take(chosen)
        validation = validation.take(slice(0, protocol.num_validation))
        test = test.take(np.asarray(jr.permutation(test_key, len(test)))[: protocol.num_test])
    channels, height, width = train.x.shape[1:]
    return Splits(on_device(train), on_device(validation), test, train.num_classes, (channels, height, width))


def _in_memory(source: Source, images: Images) -> ArrayDataset:
    """Return the images of a source as a network sees them, as arrays."""
    prepared = Prepared(source, images.decode, images.normalization)
    examples = [prepared[position] for position in range(len(prepared))]
    x, y, i = (np.stack([example[name] for example in examples]) for name in ("x", "y", "i"))
    return ArrayDataset(x.astype(np.float32), y, i, images.facts.num_classes)


def read_splits(protocol: Protocol, seed: int, inputs: Inputs, *, key: PRNGKeyArray) -> Splits:
    """Return the data of one seed.

    Args:
        protocol: the protocol.
        seed: number of the seed.
        inputs: the folder of the data, for those that are not installed with a package.
        key: random key.
    """
    if protocol.dataset in ("digits", "digit_pairs"):
        return _digit_splits(protocol, seed, key=key)
    images = open_images(protocol, inputs, key=key)
    train, validation, test = (_in_memory(own, images) for own in share(images, protocol, seed, key=key))
    return Splits(
        on_device(train),
        on_device(validation),
        test,
        images.facts.num_classes,
        images.facts.image_shape,
        perturb=images.perturb,
        normalization=images.normalization,
    )
