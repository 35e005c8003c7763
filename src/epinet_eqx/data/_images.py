"""Encoded images: safe decoding, ImageNet's crops, and folders with one class each."""

import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from .._checks import check_positive, require_package
from .._files import StrPath, require_folder

Pixels = UInt8[np.ndarray, "channels height width"]

# Pillow reads many more formats; some start other programs, such as Ghostscript for EPS.
_FORMATS = ("JPEG", "PNG", "WEBP")
_SUFFIXES = (".jpeg", ".jpg", ".png")
# A small file can claim any size; photographs have less than 16 pixels per byte.
_MAX_PIXELS = 2**24
_MAX_PIXELS_PER_BYTE = 64
# Maximum number of attempts to draw a window that fits.
_NUM_TRIES = 10


class CorruptImageError(ValueError):
    """An image cannot be decoded; the message names its file."""


def _as_rgb(image: Any) -> Any:
    """Return a decoded image with three channels of 8 bits."""
    module = require_package("PIL.Image")
    if image.mode.startswith("I"):
        # Pillow would clip the 16 bits of a gray PNG to 255.
        pixels = np.asarray(image).astype(np.uint32)
        gray = module.fromarray(((pixels + 128) // 257).astype(np.uint8))
        if (transparent := image.info.get("transparency")) is not None:
            gray.putalpha(module.fromarray(np.where(pixels == transparent, 0, 255).astype(np.uint8)))
        image = gray
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = module.alpha_composite(module.new("RGBA", rgba.size, "white"), rgba)
    return image if image.mode == "RGB" else image.convert("RGB")


def decode(encoded: bytes) -> Any:
    """Return an image of Pillow with three channels of 8 bits, decoded whole.

    JPEG, PNG and WebP are read, and no other format. Gray and palette images become RGB, 16 bits are scaled to 8, and
    transparent images are composited on white. The number of pixels is bounded: 2**24, or 64 per byte of the file.
    """
    module = require_package("PIL.Image")
    try:
        image = module.open(io.BytesIO(encoded), formats=_FORMATS)
        width, height = image.size
        if width * height > max(_MAX_PIXELS, _MAX_PIXELS_PER_BYTE * len(encoded)):
            raise ValueError(f"{width} x {height} pixels in {len(encoded)} bytes are too many")
        image.load()
        return _as_rgb(image)
    except MemoryError:
        raise
    except module.UnidentifiedImageError:
        raise CorruptImageError(f"is not a whole image: no {', '.join(_FORMATS)} file") from None
    # Decoders raise all kinds of errors for damaged content.
    except Exception as error:
        raise CorruptImageError(f"is not a whole image: {error}") from None


def _channels_first(image: Any) -> Pixels:
    """Return the pixels of a decoded image."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _resized(image: Any, box: tuple[int, int, int, int], size: int) -> Pixels:
    """Return a box of the image resized to a square, by bicubic interpolation."""
    bicubic = require_package("PIL.Image").Resampling.BICUBIC
    return _channels_first(image.resize((size, size), bicubic, box=box))


@dataclasses.dataclass(frozen=True)
class Decode:
    """Decode a JPEG, PNG or WebP image to RGB at its own size; transparent pixels are composited on white."""

    def __call__(self, encoded: bytes, rng: np.random.Generator) -> Pixels:
        """Return the pixels."""
        return _channels_first(decode(encoded))


@dataclasses.dataclass(frozen=True)
class RandomResizedCrop:
    """Decode an image (as `Decode` does) and resize a random window to a square: ImageNet's training augmentation.

    The window's fraction of the area is uniform in `area`, and the logarithm of its aspect ratio uniform between those
    of `ratio`. If ten draws do not fit, the largest centered window with an allowed ratio is used.
    """

    size: int = 224
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self):
        """Check the ranges."""
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
        w, h = max(1, min(width, round(height * ratio))), max(1, min(height, round(width / ratio)))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h

    def __call__(self, encoded: bytes, rng: np.random.Generator) -> Pixels:
        """Return the pixels of the resized window."""
        image = decode(encoded)
        width, height = image.size
        return _resized(image, self.window(width, height, rng), self.size)


@dataclasses.dataclass(frozen=True)
class CenterCrop:
    """Decode an image (as `Decode` does) and resize its center to a square: ImageNet's evaluation.

    The window covers `size / (size + border)` of the shorter side, such as 224 pixels of 256.
    """

    size: int = 224
    border: int = 32

    def __post_init__(self):
        """Check the sizes."""
        check_positive("size", self.size)
        if self.border < 0:
            raise ValueError(f"`border` must not be negative; got {self.border}.")

    def __call__(self, encoded: bytes, rng: np.random.Generator) -> Pixels:
        """Return the pixels of the resized center."""
        image = decode(encoded)
        side = max(1, round(min(image.size) * self.size / (self.size + self.border)))
        left, top = (image.size[0] - side) // 2, (image.size[1] - side) // 2
        return _resized(image, (left, top, left + side, top + side), self.size)


class ImageFolder:
    """Images in one folder per class, such as `train/n01440764/n01440764_10026.JPEG`.

    Classes are numbered by sorted name, and examples by class and sorted file name, so numbers are the same on every
    machine. A file is read when its example is requested, and decoded by a transform such as `CenterCrop`.
    """

    num_classes: int

    def __init__(self, path: StrPath, *, classes: Sequence[str] | None = None):
        """List the files.

        Args:
            path: the folder of a split, with one folder per class.
            classes: names of the classes in the order of their labels, each of which must be there; by default all
                folders, sorted.
        """
        root = require_folder("path", path)
        present = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        if not present:
            raise ValueError(f"`path` must hold one folder per class; {str(root)!r} holds none.")
        self.path = root
        self.classes = tuple(present if classes is None else classes)
        self.num_classes = len(self.classes)
        names: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(self.classes):
            folder = root / name
            if not folder.is_dir():
                raise FileNotFoundError(f"`path` must hold a folder for each class; {str(folder)!r} is missing.")
            files = sorted(entry.name for entry in os.scandir(folder) if entry.name.lower().endswith(_SUFFIXES))
            if not files:
                raise ValueError(f"The folder of a class must hold images; {str(folder)!r} holds none.")
            names += [f"{name}/{file}" for file in files]
            labels += [label] * len(files)
        extra = sorted(set(present) - set(self.classes))
        if extra:
            raise ValueError(f"`classes` must name every folder of {str(root)!r}; {extra[0]!r} is not among them.")
        # Arrays, not lists of objects: every worker process gets a copy.
        self._names = np.array([name.encode() for name in names])
        self._labels = np.array(labels, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example, whose `x` is the content of its file."""
        content = pathlib.Path(self.describe(position)).read_bytes()
        return {"x": content, "y": self._labels[position], "i": np.int32(position)}

    def describe(self, position: int) -> str:
        """Return the file of one example."""
        return str(self.path / self._names[position].decode())
