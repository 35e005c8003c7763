"""Augmented dyadic batches (Appendix E): each draw is a random crop and flip of one of two images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from .._checks import check_positive
from .._keys import generator_of, stream_of
from ..losses import Batch
from ._arrays import Source, check_numbers
from ._images import CorruptImageError
from ._transforms import AUGMENTED_DYADIC, Normalization, Transform, apply


class AugmentedDyads:
    """Groups of `tau` draws from each consecutive pair of examples, each draw augmented independently.

    Unlike plain dyadic sampling these have no closed form, so they are sampled. Group `g` depends on the key and `g`
    only.
    """

    def __init__(
        self,
        source: Source,
        *,
        tau: int = 10,
        decode: Sequence[Transform] = (),
        transforms: Sequence[Transform] = AUGMENTED_DYADIC,
        normalization: Normalization | None = None,
        key: PRNGKeyArray,
    ):
        """Initialize; nothing is read yet.

        Args:
            source: the test examples; the last of an odd number is left out.
            tau: draws per group.
            decode: applied once to each of the two anchors, such as `(CenterCrop(),)` for encoded images.
            transforms: applied to each draw; by default a crop, 4 pixels smaller and resized back, and a flip.
            normalization: converts pixels to floats.
            key: random key.
        """
        check_positive("tau", tau)
        if len(source) < 2:
            raise ValueError(f"`source` must hold at least one pair; got {len(source)} examples.")
        self.source = source
        self.tau = tau
        self.decode, self.transforms = tuple(decode), tuple(transforms)
        self.normalization = normalization
        self._stream = stream_of(key, "augmented dyads")

    def __len__(self) -> int:
        return len(self.source) // 2

    def __getitem__(self, group: int) -> dict[str, Any]:
        """Return one group: arrays `x`, `y` and `i` with a leading axis of length `tau`."""
        if not 0 <= group < len(self):
            raise IndexError(f"`group` must be from 0 to {len(self) - 1}; got {group}.")
        rng = generator_of(self._stream, group)
        anchors = [self._anchor(position, rng) for position in (2 * group, 2 * group + 1)]
        drawn = [anchors[choice] for choice in rng.integers(0, 2, size=self.tau)]
        x = np.stack([apply(self.transforms, anchor["x"], rng) for anchor in drawn])
        return {
            "x": x if self.normalization is None else self.normalization(x),
            "y": check_numbers(f"`y` of {self.describe(group)}", [anchor["y"] for anchor in drawn], self.tau),
            "i": check_numbers(f"`i` of {self.describe(group)}", [anchor["i"] for anchor in drawn], self.tau),
        }

    def _anchor(self, position: int, rng: np.random.Generator) -> dict[str, Any]:
        """Return one decoded example."""
        example = self.source[position]
        try:
            return {**example, "x": apply(self.decode, example["x"], rng)}
        except CorruptImageError as error:
            raise CorruptImageError(f"{self.source.describe(position)!r} {error}") from None

    def describe(self, position: int) -> str:
        """Return a name for one group in error messages."""
        return f"{self.source.describe(2 * position)} and {self.source.describe(2 * position + 1)}"

    def as_batch(self, start: int = 0, stop: int | None = None) -> Batch:
        """Return groups `start` to `stop - 1` in one `Batch`, each group's draws side by side."""
        groups = [self[group] for group in range(start, len(self) if stop is None else stop)]
        if not groups:
            raise ValueError(f"`stop` must be above `start`, {start}; got {stop}.")
        return Batch(*(np.concatenate([group[name] for group in groups]) for name in ("x", "y", "i")))
