"""Augmentations of images in memory, with channels first.

A transform is a function of an image and a numpy generator. Those that draw nothing take the generator all the same, so
that a pipeline treats all alike.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from .._checks import check_positive

Transform = Callable[[Any, np.random.Generator], Any]
"""Called as `transform(image, rng)`: any function of an image and a generator of random numbers."""

Image = Shaped[np.ndarray, "channels height width"]


def apply(transforms: Sequence[Transform], image: Any, rng: np.random.Generator) -> Any:
    """Return the image after all transforms, in order."""
    for transform in transforms:
        image = transform(image, rng)
    return image


@dataclasses.dataclass(frozen=True)
class RandomFlip:
    """Mirror an image left to right, with probability one half."""

    def __call__(self, image: Image, rng: np.random.Generator) -> Image:
        """Return the image or its mirror image."""
        return image[:, :, ::-1] if rng.random() < 0.5 else image


@dataclasses.dataclass(frozen=True)
class RandomCrop:
    """Pad an image by zeros on all sides and cut a window of its own size out, uniformly."""

    padding: int

    def __post_init__(self):
        """Raise unless there is something to shift."""
        check_positive("padding", self.padding)

    def __call__(self, image: Image, rng: np.random.Generator) -> Image:
        """Return the shifted image."""
        _, height, width = image.shape
        top, left = (int(n) for n in rng.integers(0, 2 * self.padding + 1, size=2))
        padded = np.zeros((image.shape[0], height + 2 * self.padding, width + 2 * self.padding), image.dtype)
        padded[:, self.padding : -self.padding, self.padding : -self.padding] = image
        return padded[:, top : top + height, left : left + width]


@dataclasses.dataclass(frozen=True)
class Cutout:
    """Set a square around a uniformly drawn pixel to zero, with some probability; it may reach over the border."""

    size: int
    probability: float = 0.5

    def __post_init__(self):
        """Raise unless size and probability make sense."""
        check_positive("size", self.size)
        if not 0 <= self.probability <= 1:
            raise ValueError(f"`probability` must be between 0 and 1; got {self.probability}.")

    def __call__(self, image: Image, rng: np.random.Generator) -> Image:
        """Return the image, with or without a hole."""
        _, height, width = image.shape
        row, column = int(rng.integers(height)), int(rng.integers(width))
        if rng.random() >= self.probability:
            return image
        top, left = row - self.size // 2, column - self.size // 2
        image = image.copy()
        image[:, max(top, 0) : max(top + self.size, 0), max(left, 0) : max(left + self.size, 0)] = 0
        return image


@ft.cache
def _interpolation(size: int, target: int) -> np.ndarray:
    """Return the matrix that resizes a vector bilinearly, with the centers of pixels half a pixel in."""
    at = np.clip((np.arange(target) + 0.5) * size / target - 0.5, 0, size - 1)
    below = np.minimum(at.astype(int), max(size - 2, 0))
    matrix = np.zeros((target, size), np.float32)
    matrix[np.arange(target), below] = 1 - (at - below)
    matrix[np.arange(target), np.minimum(below + 1, size - 1)] += at - below
    return matrix


@dataclasses.dataclass(frozen=True)
class CropAndResize:
    """Cut a window that is some pixels smaller out of an image, uniformly, and enlarge it to the old size.

    With a margin of 4 and a flip after it, this is the augmentation of augmented dyadic sampling.
    """

    margin: int = 4

    def __post_init__(self):
        """Raise unless the window is smaller than the image."""
        check_positive("margin", self.margin)

    def __call__(self, image: Image, rng: np.random.Generator) -> Image:
        """Return the enlarged window; bytes stay bytes."""
        _, height, width = image.shape
        if min(height, width) <= self.margin:
            raise ValueError(f"`margin` must be smaller than the image, {height} x {width}; got {self.margin}.")
        top, left = (int(n) for n in rng.integers(0, self.margin + 1, size=2))
        window = image[:, top : top + height - self.margin, left : left + width - self.margin].astype(np.float32)
        rows, columns = _interpolation(height - self.margin, height), _interpolation(width - self.margin, width)
        resized = rows @ window @ columns.T
        return np.rint(resized).astype(np.uint8) if image.dtype == np.uint8 else resized.astype(image.dtype)


CIFAR10_TRAIN = (RandomCrop(padding=4), RandomFlip())
"""Training images of CIFAR-10: a crop after padding by 4 pixels, and a flip."""

CIFAR100_TRAIN = (RandomCrop(padding=2), RandomFlip(), Cutout(16, probability=0.5))
"""Training images of CIFAR-100: a crop after padding by 2 pixels, a flip, and for half of them a cutout."""

AUGMENTED_DYADIC = (CropAndResize(margin=4), RandomFlip())
"""Draws of augmented dyadic batches (Appendix E): a crop that is resized back, and a flip."""
