"""The data of a protocol at scale: what is trained on, and what agents are scored on, read from a folder."""

import functools as ft
import os
from collections.abc import Iterator, Sequence
from typing import Any

from jaxtyping import PRNGKeyArray

from epinet_eqx.data import AugmentedDyads, FeatureBank, Loader, Source
from epinet_eqx.losses import Batch

from ..configs.images import Training
from .image_agents import Seed
from .image_sources import Facts, Images, Prepared, Shares, known_facts, open_images, share, sizes_of
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


class ScaleData:
    """The images of one seed; nothing is read before it is asked for."""

    def __init__(self, seed: Seed):
        """Initialize with the seed."""
        self.seed = seed
        self._key = seed.key_of("data", shared=True)
        self.num_threads = min(16, os.cpu_count() or 1)

    @ft.cached_property
    def images(self) -> Images:
        """The data set."""
        return open_images(self.seed.protocol, self.seed.inputs, key=self._key)

    @ft.cached_property
    def shares(self) -> Shares:
        """The examples of this seed."""
        return share(self.images, self.seed.protocol, self.seed.number, key=self._key)

    @ft.cached_property
    def facts(self) -> Facts:
        """Numbers and shapes of the data set, which is not read for them where they are public."""
        return known_facts(self.seed.protocol, self.seed.inputs) or self.images.facts

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many examples are for training, for choices and for testing."""
        return sizes_of(self.seed.protocol, self.facts)

    @ft.cached_property
    def splits(self) -> dict[str, Source]:
        """The sources that agents are scored on, as networks see their images."""
        images, shares = self.images, self.shares
        dyads = AugmentedDyads(
            shares.test,
            tau=TAU,
            decode=images.decode,
            transforms=images.perturb,
            normalization=images.normalization,
            key=self.seed.key_of("augmented"),
        )
        prepared = {
            name: Prepared(getattr(shares, name), images.decode, images.normalization)
            for name in ("validation", "test")
        }
        return {**prepared, "augmented": DrawnSource(dyads, self.seed.protocol.num_augmented)}

    def loader(self, source: Source, batch_size: int) -> Loader:
        """Return a loader that goes through a source once, in order."""
        return Loader(
            source,
            batch_size=batch_size,
            shuffle=False,
            num_epochs=1,
            drop_remainder=False,
            num_threads=self.num_threads,
            key=None,
        )

    def training(self, training: Training, *, key: PRNGKeyArray) -> Loader:
        """Return a loader of training batches, in an order that the key gives."""
        images = self.images
        return Loader(
            self.shares.train,
            batch_size=training.batch_size,
            transforms=images.augment or images.decode,
            normalization=images.normalization,
            num_threads=self.num_threads,
            num_workers=self.seed.inputs.loaders,
            key=key,
        )

    def decoded(self) -> Loader:
        """Return a loader that goes through the training images once, as they are."""
        return self.loader(Prepared(self.shares.train, self.images.decode, self.images.normalization), CHUNK)

    def batches(self, split: str) -> Iterator[Batch]:
        """Yield the images of a split."""
        with self.loader(self.splits[split], CHUNK) as loader:
            yield from loader
