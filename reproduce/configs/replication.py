"""Configurations of the replication on real CIFAR-10: what is stored of which networks, and what is trained on it."""

from collections.abc import Mapping
from dataclasses import dataclass

CORRUPTIONS = ("noise", "blur", "contrast")
"""Corruptions, each at several strengths; rotations have none."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one network says of one set of images: the unit of the bank.

    Attributes:
        network: name of the network, such as "resnet20_00".
        images: "test", "train", "augmented" (training images, shifted and flipped once), "dyads" (augmented dyadic
            draws from test pairs) or "shifted" (test images, rotated and corrupted).
        num_images: how many images, of the test or training set, that it is made from.
    """

    network: str
    images: str
    num_images: int


@dataclass(frozen=True, kw_only=True)
class Networks:
    """The networks of one depth, and how many of them see which images.

    Attributes:
        depth: their depth.
        test: number of networks, the first ones, that see the test images.
        train: number of these that are bases of epinets: they see the training images.
        augmented: number of these that see augmented training images, too.
        dyads: number that see augmented dyadic draws.
        shifted: number that see rotated and corrupted test images.
    """

    depth: int
    test: int
    train: int
    augmented: int = 0
    dyads: int = 0
    shifted: int = 0

    def names(self, images: str) -> tuple[str, ...]:
        """Return the names of the networks that see these images."""
        return tuple(f"resnet{self.depth}_{number:02d}" for number in range(getattr(self, images)))


@dataclass(frozen=True, kw_only=True)
class BankConfig:
    """The feature bank.

    Attributes:
        networks: the networks by depth, the particles' depth first.
        num_test: test images.
        num_train: training images.
        num_dyads: test images whose consecutive pairs give augmented dyadic draws.
        num_shifted: test images that are rotated and corrupted.
    """

    networks: tuple[Networks, ...] = (
        Networks(depth=20, test=20, train=5, augmented=3, dyads=20, shifted=20),
        Networks(depth=32, test=5, train=3),
        Networks(depth=44, test=4, train=2),
        Networks(depth=56, test=8, train=2),
    )
    num_test: int = 10_000
    num_train: int = 20_000
    num_dyads: int = 600
    num_shifted: int = 250

    def num_images(self, images: str) -> int:
        """Return how many images of the data set a piece is made from."""
        sizes = {"dyads": self.num_dyads, "shifted": self.num_shifted, "test": self.num_test}
        return sizes.get(images, self.num_train)

    def units(self) -> Mapping[str, Piece]:
        """Return one piece per network and set of images."""
        names = [(own, name) for own in self.networks for name in own.names("test")]
        order = [
            (name, images)
            for own, name in names
            for images in ("test", "train", "augmented")
            if name in own.names(images)
        ]
        # What least depends on comes last.
        order += [
            (name, images) for images in ("dyads", "shifted") for own in self.networks for name in own.names(images)
        ]
        return {
            f"{name}-{images}": Piece(network=name, images=images, num_images=self.num_images(images))
            for name, images in order
        }
