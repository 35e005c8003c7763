"""From pixels to the numbers that a network was trained on."""

import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from .._files import read_json


def _check_pair(mean: Any, std: Any, where: str) -> None:
    """Raise unless there are as many deviations as means, on the scale where pixels are from 0 to 1."""
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
        """Raise unless the numbers can be those of images."""
        _check_pair(self.mean, self.std, "`Normalization`")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Normalization":
        """Read the entries `mean` and `std` of a JSON file."""
        where = repr(os.fspath(path))
        content = read_json(pathlib.Path(path))
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
        # In place: images are many, and memory traffic is what this costs.
        result *= scale
        result -= shift
        return result


IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels of ImageNet."""

CIFAR10_NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Mean and standard deviation of the channels of CIFAR-10."""

CIFAR100_NORMALIZATION = Normalization((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
"""Mean and standard deviation of the channels of CIFAR-100."""
