"""What is evaluated at scale: stored outputs of particles, and draws of augmented batches."""

import functools as ft
from collections.abc import Iterator, Sequence
from typing import Any

from epinet_eqx.data import AugmentedDyads, FeatureBank
from epinet_eqx.losses import Batch

from .scoring import TAU, particles_batch

CHUNK = 500
"""Images that are evaluated at a time: pairs and groups of `TAU` are never cut."""


class DrawnSource:
    """The draws of augmented dyadic batches, one after the other."""

    def __init__(self, dyads: AugmentedDyads, num_groups: int):
        """Initialize with the batches, and how many of them to take."""
        self.dyads = dyads
        self.num_groups = min(num_groups, len(dyads))
        self._group = ft.lru_cache(maxsize=64)(dyads.__getitem__)

    def __len__(self) -> int:
        return TAU * self.num_groups

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one draw."""
        group = self._group(position // TAU)
        return {name: value[position % TAU] for name, value in group.items()}

    def describe(self, position: int) -> str:
        """Return what an error message calls one draw."""
        return self.dyads.describe(position // TAU)


def stored_batches(banks: Sequence[FeatureBank], split: str) -> Iterator[Batch]:
    """Yield the outputs of several networks, side by side."""
    for start in range(0, banks[0].splits[split], CHUNK):
        yield particles_batch([bank.as_batch(split, start=start, stop=start + CHUNK) for bank in banks])
