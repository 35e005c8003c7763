"""Augmentation and normalization of images in memory, with channels first.

A transform is a function of an image and a numpy generator, whether it draws random numbers or not.
"""

import dataclasses
import functools as ft
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

from .._checks import check_positive
from .._files import StrPath, read_json

Transform = Callable[[Any, np.random.Generator], Any]
"""Any function `transform(image, rng)` of an image and a numpy generator."""

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
    """Pad an image with zeros and crop a uniformly drawn window of the original size."""

    padding: int

    def __post_init__(self):
        """Check the padding."""
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
    """With some probability, set a square around a uniformly drawn pixel to zero; the border may clip it."""

    size: int
    probability: float = 0.5

    def __post_init__(self):
        """Check size and probability."""
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
    """Return the matrix of bilinear resizing with half-pixel centers."""
    at = np.clip((np.arange(target) + 0.5) * size / target - 0.5, 0, size - 1)
    below = np.minimum(at.astype(int), max(size - 2, 0))
    matrix = np.zeros((target, size), np.float32)
    matrix[np.arange(target), below] = 1 - (at - below)
    matrix[np.arange(target), np.minimum(below + 1, size - 1)] += at - below
    return matrix


@dataclasses.dataclass(frozen=True)
class CropAndResize:
    """Crop a uniformly drawn window that is `margin` pixels smaller and resize it to the original size.

    Augmented dyadic sampling uses a margin of 4, followed by a flip.
    """

    margin: int = 4

    def __post_init__(self):
        """Check the margin."""
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
"""Training augmentation of CIFAR-10: a crop after padding by 4 pixels, and a flip."""

CIFAR100_TRAIN = (RandomCrop(padding=2), RandomFlip(), Cutout(16, probability=0.5))
"""Training augmentation of CIFAR-100: a crop after padding by 2 pixels, a flip, and a cutout half of the time."""

AUGMENTED_DYADIC = (CropAndResize(margin=4), RandomFlip())
"""Augmentation of augmented dyadic batches (Appendix E): a crop resized to the original size, and a flip."""


def _check_pair(mean: Any, std: Any, where: str) -> None:
    """Raise unless mean and standard deviation have one number per channel, for pixels from 0 to 1."""
    for name, values in (("mean", mean), ("std", std)):
        numbers = isinstance(values, list | tuple) and all(isinstance(v, float | int) for v in values) and values
        if not numbers or not all(0 <= v <= 1 for v in values) or (name == "std" and 0 in values):
            raise ValueError(
                f"`{name}` of {where} must be a list with one number per channel for pixels between 0 and 1"
                f"{', above zero' if name == 'std' else ''}; got {values!r}."
            )
    if len(mean) != len(std):
        raise ValueError(f"`std` of {where} must have as many channels as `mean`, {len(mean)}; got {len(std)}.")


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Per channel, `(pixel / 255 - mean) / std`, for images with channels first."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self):
        """Check both."""
        _check_pair(self.mean, self.std, "`Normalization`")

    @classmethod
    def read(cls, path: StrPath) -> "Normalization":
        """Read the entries `mean` and `std` of a JSON file."""
        where = repr(os.fspath(path))
        content = read_json(path)
        if not isinstance(content, dict) or not {"mean", "std"} <= content.keys():
            found = ", ".join(content) if isinstance(content, dict) else type(content).__name__
            raise ValueError(f"{where} must be a JSON object with the entries `mean` and `std`; got {found or 'none'}.")
        _check_pair(content["mean"], content["std"], where)
        return cls(tuple(map(float, content["mean"])), tuple(map(float, content["std"])))

    def __call__(
        self, pixels: UInt8[np.ndarray, "*batch channels height width"]
    ) -> Float32[np.ndarray, "*batch channels height width"]:
        """Return the normalized images."""
        if pixels.dtype != np.uint8 or pixels.ndim < 3 or pixels.shape[-3] != len(self.mean):
            raise ValueError(
                f"`pixels` must be bytes with {len(self.mean)} channels before height and width; "
                f"got {pixels.dtype} of shape {pixels.shape}."
            )
        scale = (1 / (255 * np.asarray(self.std))).astype(np.float32)[:, None, None]
        shift = (np.asarray(self.mean) / np.asarray(self.std)).astype(np.float32)[:, None, None]
        result = pixels.astype(np.float32)
        # In place: this is bound by memory traffic.
        result *= scale
        result -= shift
        return result


IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels of ImageNet."""

CIFAR10_NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Mean and standard deviation of the channels of CIFAR-10."""

CIFAR100_NORMALIZATION = Normalization((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
"""Mean and standard deviation of the channels of CIFAR-100."""
