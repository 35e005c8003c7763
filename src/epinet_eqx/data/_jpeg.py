"""Encoded images: decoding, and the crops of ImageNet, which are cut before anything is resized."""

import dataclasses
import io
import math
from typing import Any

import numpy as np
from jaxtyping import UInt8

from .._checks import check_positive, require_package

Pixels = UInt8[np.ndarray, "channels height width"]

# A window is drawn anew if it does not fit, this many times.
_NUM_TRIES = 10


class CorruptImageError(ValueError):
    """An image cannot be decoded; the message names its file."""


def _open(encoded: bytes) -> Any:
    """Return the decoded image with three channels."""
    image = require_package("PIL.Image")
    try:
        opened = image.open(io.BytesIO(encoded))
        # The whole file is decoded here, so that a damaged one is found here.
        opened.load()
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise CorruptImageError(f"is not a whole image: {error}") from None
    return opened if opened.mode == "RGB" else opened.convert("RGB")


def _channels_first(image: Any) -> Pixels:
    """Return the pixels of a decoded image."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _resized(image: Any, box: tuple[int, int, int, int], size: int) -> Pixels:
    """Return the content of a box of the image as a square, by bicubic interpolation."""
    bicubic = require_package("PIL.Image").Resampling.BICUBIC
    return _channels_first(image.resize((size, size), bicubic, box=box))


@dataclasses.dataclass(frozen=True)
class Decode:
    """Decode an image and leave it as it is."""

    def __call__(self, encoded: bytes, rng: np.random.Generator) -> Pixels:
        """Return the pixels."""
        return _channels_first(_open(encoded))


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop:
    """Decode an image and resize a random window of it to a square: the training augmentation of ImageNet.

    The window has an area uniform between `area` of the image's and a logarithm of its aspect ratio uniform between
    those of `ratio`; where ten draws do not fit, the largest centered window with such a ratio is taken.
    """

    size: int = 224
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self):
        """Raise unless the ranges are ranges."""
        check_positive("size", self.size)
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise ValueError(f"`area` must be a range between 0 and 1; got {self.area}.")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"`ratio` must be a range of positive numbers; got {self.ratio}.")

    def window(self, width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Return the left, upper, right and lower side of a random window."""
        for _ in range(_NUM_TRIES):
            area = width * height * rng.uniform(*self.area)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
                return left, top, left + w, top + h
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        w, h = min(width, round(height * ratio)), min(height, round(width / ratio))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h

    def __call__(self, encoded: bytes, rng: np.random.Generator) -> Pixels:
        """Return the pixels of the resized window."""
        image = _open(encoded)
        width, height = image.size
        return _resized(image, self.window(width, height, rng), self.size)


@dataclasses.dataclass(frozen=True)
class CenterCrop:
    """Decode an image and resize its center to a square: the evaluation of ImageNet.

    The window has `size / (size + border)` of the shorter side, so that 224 pixels are cut as if out of 256.
    """

    size: int = 224
    border: int = 32

    def __post_init__(self):
        """Raise unless the sizes are sizes."""
        check_positive("size", self.size)
        if self.border < 0:
            raise ValueError(f"`border` must not be negative; got {self.border}.")

    def __call__(self, encoded: bytes, rng: np.random.Generator) -> Pixels:
        """Return the pixels of the resized center."""
        image = _open(encoded)
        side = max(1, round(min(image.size) * self.size / (self.size + self.border)))
        left, top = (image.size[0] - side) // 2, (image.size[1] - side) // 2
        return _resized(image, (left, top, left + side, top + side), self.size)
