"""Images of the replication: CIFAR-10 as it is, augmented, rotated and corrupted."""

import functools as ft
from pathlib import Path
from typing import Literal

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.data import CIFAR10_TRAIN, ArrayDataset, AugmentedDyads, cifar

from .scoring import TAU

STRENGTHS = (1, 2, 3, 4, 5)
# Of pixels between 0 and 1: standard deviation of the noise, of the blur in pixels, and what is left of the contrast.
_NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)
_BLUR = (0.4, 0.7, 1.0, 1.5, 2.2)
_CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
_QUARTER_TURNS = (1, 2, 3)


@ft.lru_cache(maxsize=2)
def _read(path: Path, split: Literal["train", "test"]) -> ArrayDataset:
    """Return a split, read once per process."""
    return cifar(path, split)


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    """Return a generator of numpy that is a function of a key."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def _blurred(x: np.ndarray, deviation: float) -> np.ndarray:
    """Return images after a Gaussian blur, with their border repeated."""
    reach = int(np.ceil(3 * deviation))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    weights /= weights.sum()
    for axis in (2, 3):
        pads = [(0, 0)] * 4
        pads[axis] = (reach, reach)
        padded = np.pad(x, pads, mode="edge")
        size = x.shape[axis]
        x = np.sum([w * np.take(padded, range(at, at + size), axis=axis) for at, w in enumerate(weights)], axis=0)
    return x


def _corrupted(x: np.ndarray, kind: str, strength: int, rng: np.random.Generator) -> np.ndarray:
    """Return corrupted images, pixels between 0 and 1."""
    if kind == "noise":
        return x + _NOISE[strength - 1] * rng.standard_normal(x.shape, dtype=np.float32)
    if kind == "blur":
        return _blurred(x, _BLUR[strength - 1])
    mean = x.mean(axis=(1, 2, 3), keepdims=True)
    return mean + _CONTRAST[strength - 1] * (x - mean)


def shifts() -> list[tuple[str, int]]:
    """Return the kinds of shift and their strengths, in the order in which `shifted` lays them out."""
    turned = [("rotation", turns) for turns in _QUARTER_TURNS]
    return turned + [(kind, strength) for kind in ("noise", "blur", "contrast") for strength in STRENGTHS]


def _shifted(data: ArrayDataset, key: PRNGKeyArray) -> ArrayDataset:
    """Return all images under the first shift, then under the second, and so on."""
    x = data.x.astype(np.float32) / 255
    parts = []
    for kind, strength in shifts():
        if kind == "rotation":
            parts.append(np.rot90(data.x, strength, axes=(2, 3)))
        else:
            (own_key,) = named_keys(key, f"{kind} {strength}")
            changed = _corrupted(x, kind, strength, _generator(own_key))
            parts.append(np.rint(255 * np.clip(changed, 0, 1)).astype(np.uint8))
    return ArrayDataset(np.concatenate(parts), np.tile(data.y, len(parts)), num_classes=10, name="shifted images")


def _augmented(data: ArrayDataset, key: PRNGKeyArray) -> ArrayDataset:
    """Return every image once, shifted and flipped at random as CIFAR networks are trained."""
    rng = _generator(key)
    x = np.empty_like(data.x)
    for position, image in enumerate(data.x):
        for transform in CIFAR10_TRAIN:
            image = transform(image, rng)
        x[position] = image
    return ArrayDataset(x, data.y, data.i, data.num_classes, "augmented images")


def images_of(path: Path, images: str, num_images: int, *, key: PRNGKeyArray) -> ArrayDataset:
    """Return images and their labels; the same for every network.

    Args:
        path: folder of CIFAR-10.
        images: which ones; see `Piece`.
        num_images: how many images of the data set they are made from, the first ones.
        key: random key of what is random about them.
    """
    (own_key,) = named_keys(key, images)
    split = "train" if images in ("train", "augmented") else "test"
    data = _read(path, split)
    if len(data) < num_images:
        raise ValueError(f"`num_images` must be at most the number of {split} images, {len(data)}; got {num_images}.")
    data = data.take(slice(0, num_images))
    if images == "augmented":
        return _augmented(data, own_key)
    if images == "shifted":
        return _shifted(data, own_key)
    if images == "dyads":
        drawn = AugmentedDyads(data, tau=TAU, key=own_key).as_batch()
        return ArrayDataset(np.asarray(drawn.x), np.asarray(drawn.y), num_classes=10, name="augmented dyads")
    return data
