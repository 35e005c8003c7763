"""Configurations of the replication on real CIFAR-10: what is stored of which networks, and what is trained on it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


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
        first, *others = self.networks
        order = [(name, images) for images in ("test", "train", "augmented") for name in first.names(images)]
        order += [(name, images) for own in others for images in ("test", "train") for name in own.names(images)]
        # What least depends on comes last.
        order += [
            (name, images) for images in ("dyads", "shifted") for own in self.networks for name in own.names(images)
        ]
        return {
            f"{name}-{images}": Piece(network=name, images=images, num_images=self.num_images(images))
            for name, images in order
        }


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An epinet on the stored features of a frozen base.

    Attributes:
        prior_scale: scale of the prior of the epinet's own architecture.
        conv_scale: scale of the ensemble of small conv nets on the image.
        index_dim: dimension of the index.
        hidden: sizes of the hidden layers.
        features: "last" for the 64 that the logits are linear in, "all" for the channel means of all groups.
        standardized: whether each feature has mean 0 and deviation 1 over the training images.
        unit: whether each image's features are given the same length, so that an epinet is not most uncertain where
            features are longest: there the base is right.
        tempered_base: whether the base's logits are divided by the temperature that suits them before the epinet is
            added.
        augmented: whether training images are seen a second time, augmented.
        epochs: passes over the training images.
        batch_size: examples per step.
        optimizer: "sgd" for Nesterov momentum 0.9, or "adam"; both with cosine decay of the rate.
        learning_rate: the rate.
        l2: strength of the L2 penalty.
        label_smoothing: total probability that is spread over all classes.
        num_index_samples: index samples per step.
        mirrored: whether predictions are those of the epinet's odd part, whose mean is the base's output, at a scale
            that is chosen together with the temperature.
        allowance: by which share the marginal loss may exceed the base's where temperature and scale are chosen.
    """

    prior_scale: float
    conv_scale: float = 0.0
    index_dim: int = 20
    hidden: tuple[int, ...] = (50,)
    features: str = "last"
    standardized: bool = False
    unit: bool = False
    tempered_base: bool = False
    augmented: bool = False
    epochs: int = 9
    batch_size: int = 100
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    l2: float = 1e-4
    label_smoothing: float = 0.1
    num_index_samples: int = 5
    mirrored: bool = False
    allowance: float = 0.0


RELEASED = Recipe(prior_scale=4.0)
"""The authors' checkpoint for CIFAR-10: matched prior 4, conv prior off (Appendix G, released code)."""

PAPER = Recipe(prior_scale=1.0, conv_scale=1.0)
"""The paper's text: both priors, at the scales of its ImageNet epinet."""

STRICT = Recipe(
    prior_scale=8.0,
    standardized=True,
    unit=True,
    tempered_base=True,
    learning_rate=0.02,
    label_smoothing=0.0,
    mirrored=True,
)
"""A recipe found on the tuning part of two bases: as cold as the base's marginal loss allows."""

COLD = replace(STRICT, allowance=0.02)
"""The same, where two in a hundred of the base's marginal loss may be given for the joint one."""


FACTORS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("allowance", (0.0, 0.01, 0.05)),
    ("mirrored", (False,)),
    ("unit", (False,)),
    ("standardized", (False,)),
    ("tempered_base", (False,)),
    ("features", ("all",)),
    ("augmented", (True,)),
    ("prior_scale", (0.0, 2.0, 30.0)),
    ("conv_scale", (1.0,)),
    ("index_dim", (5, 35)),
    ("l2", (0.0, 1e-3)),
    ("epochs", (0, 30)),
    ("learning_rate", (0.1,)),
    ("label_smoothing", (0.1,)),
)
"""The ablation: one factor at a time."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that is measured.

    Attributes:
        bank: what is stored.
        num_tuning: test images on which everything is chosen; the others are what everything is judged by.
        temperatures: the temperatures to choose from.
        cold_temperatures: those to choose from together with a deviation.
        deviations: standard deviations, in nats, to choose from for the odd part of a mirrored epinet.
        taus: numbers of labels that are predicted jointly; figures compare at `tau`.
        tau: the number of labels of the figures and of every choice.
        sample_counts: numbers of indices M of the curves; figures compare at `num_samples`.
        num_samples: the number of indices M of the figures and of every choice.
        tau_counts: numbers of indices of the curves over tau; 50 is that of the public replication.
        ensemble_sizes: numbers of particles of the first depth.
        num_subsets: random subsets of each size.
        recipes: the epinets by name.
        num_controls: bases, of the first depth, for controls, ablations and what follows.
        factors: fields of the cold recipe, and the other values that each is given.
    """

    bank: BankConfig = BankConfig()
    num_tuning: int = 2000
    temperatures: tuple[float, ...] = (
        *(0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
        *(0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5),
    )
    cold_temperatures: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
    deviations: tuple[float, ...] = (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
    taus: tuple[int, ...] = (1, 2, 5, 10, 30, 100)
    tau: int = 10
    sample_counts: tuple[int, ...] = (10, 30, 50, 100, 300, 1000, 3000)
    num_samples: int = 1000
    tau_counts: tuple[int, ...] = (50, 1000)
    ensemble_sizes: tuple[int, ...] = (1, 3, 5, 10, 20)
    num_subsets: int = 20
    recipes: tuple[tuple[str, Recipe], ...] = (
        *(("released", RELEASED), ("paper", PAPER)),
        *(("strict", STRICT), ("cold", COLD)),
    )
    num_controls: int = 3
    factors: tuple[tuple[str, tuple[Any, ...]], ...] = FACTORS


@dataclass(frozen=True, kw_only=True)
class StudyPart:
    """One part of the study, of one base or of all networks: the unit that is kept."""

    study: Study
    part: str
    network: str


@dataclass(frozen=True, kw_only=True)
class Replication:
    """A figure of the replication: the parts of the study that it shows.

    Attributes:
        study: the study.
        parts: names of its parts.
    """

    study: Study
    parts: tuple[str, ...]

    def units(self) -> Mapping[str, StudyPart]:
        """Return one run per part and base; parts that are of no base are of all networks."""
        networks = self.study.bank.networks
        bases = {
            "networks": ("all",),
            "ensembles": ("all",),
            "epinets": tuple(name for own in networks for name in own.names("train")),
        }
        few = networks[0].names("train")[: self.study.num_controls]
        return {
            f"{part.replace(' ', '_')}-{network}": StudyPart(study=self.study, part=part, network=network)
            for part in self.parts
            for network in bases.get(part, few)
        }
