"""The Pitman-Yor head on real CIFAR-10, and joint predictions of different images."""

from collections.abc import Mapping
from dataclasses import dataclass

from .banked import StoredEpinet
from .cifar_bank import CIFAR_NETWORKS, RECIPES, StoredNetworks
from .replication import BankConfig


@dataclass(frozen=True, kw_only=True)
class Halves:
    """One split: everything is chosen on its first images and judged on all others.

    Attributes:
        num_tuning: images to choose on.
        blocks: blocks of the others that rows are means over.
        temperatures: candidates for what outputs are divided by.
        limit: number of images in all, for a quick look; None for all.
    """

    num_tuning: int = 2000
    blocks: int = 10
    temperatures: tuple[float, ...] = tuple(round(0.2 + 0.05 * step, 2) for step in range(77))
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class CifarHead:
    """The exact head on all networks, ensembles, and the sampled head where features are stored.

    Attributes:
        networks: the networks.
        halves: what is chosen on, and what is judged.
        alphas: aleatoric shares of the exact head.
        curve_alpha: the one of curves over the number of labels.
        taus: numbers of labels of the curves.
        ensemble_sizes: numbers of particles, of the first depth.
        sampled_alphas: candidates for the sampled head's aleatoric share.
        length_scale: how far the sampled head's knowledge reaches.
        stretches: candidates for the sampled head's temperature, in units of the exact one's.
        allowance: by which share the sampled head's marginal loss may exceed the base's where both are chosen.
        num_sets: sets of indices that the choice is a mean over.
        sample_counts: numbers of indices M; the last one is that of the choice.
    """

    networks: StoredNetworks = CIFAR_NETWORKS
    halves: Halves = Halves()
    alphas: tuple[float, ...] = (0.001, 0.05, 0.1, 0.2, 0.5, 1.0)
    curve_alpha: float = 0.1
    taus: tuple[int, ...] = (1, 2, 5, 10, 30, 100)
    ensemble_sizes: tuple[int, ...] = (3, 5, 10, 20)
    sampled_alphas: tuple[float, ...] = (0.1, 0.2, 0.3)
    length_scale: float = 0.3
    stretches: tuple[float, ...] = (1.0, 1.1)
    allowance: float = 0.02
    num_sets: int = 2
    sample_counts: tuple[int, ...] = (100, 300, 1000)

    def units(self) -> Mapping[str, "CifarHeadPart"]:
        """Return the exact heads, the ensembles, and the sampled heads of each base."""
        parts = {"exact": "", "ensembles": "", **{f"sampled-{name}": name for name in self.networks.bases}}
        return {
            unit: CifarHeadPart(study=self, part=unit.partition("-")[0], network=name) for unit, name in parts.items()
        }


@dataclass(frozen=True, kw_only=True)
class CifarHeadPart:
    """One unit: all exact heads, all ensembles, or the sampled heads of one network."""

    study: CifarHead
    part: str
    network: str


PARTICLES = StoredNetworks(sizes=((20, 20),))
"""The networks of the particles' depth."""


@dataclass(frozen=True, kw_only=True)
class NearImages:
    """Pairs of different images, near in the features of one network, and what agents know of them jointly.

    Attributes:
        networks: the networks.
        halves: what is chosen on, and what is judged.
        metric_network: the network in whose features images are near; it is no base of any agent.
        ensemble_sizes: numbers of particles, of the first depth.
        recipes: the epinets, by name.
        alpha: aleatoric share of the fields.
        length_scales: how far the fields' knowledge reaches.
        num_samples: number of indices M.
    """

    networks: StoredNetworks = PARTICLES
    halves: Halves = Halves()
    metric_network: str = "resnet56_00"
    ensemble_sizes: tuple[int, ...] = (3, 20)
    recipes: tuple[tuple[str, StoredEpinet], ...] = tuple(RECIPES.items())
    alpha: float = 0.2
    length_scales: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    num_samples: int = 1000

    def units(self) -> Mapping[str, "NearPart"]:
        """Return the ensembles, and the agents on each base."""
        bases = [name for name in self.networks.bases if name != self.metric_network]
        parts = {"ensembles": "", **{f"agents-{name}": name for name in bases}}
        return {unit: NearPart(study=self, part=unit.partition("-")[0], network=name) for unit, name in parts.items()}


@dataclass(frozen=True, kw_only=True)
class NearPart:
    """One unit: the ensembles, or the epinets and fields of one network."""

    study: NearImages
    part: str
    network: str


@dataclass(frozen=True, kw_only=True)
class PeopleLabels:
    """The exact head and ensembles where each label is another annotator's.

    Attributes:
        networks: the networks.
        halves: what is chosen on, and what is judged.
        alphas: aleatoric shares that are judged beside the fitted one.
        ensemble_size: number of particles, of the first depth.
    """

    networks: StoredNetworks = PARTICLES
    halves: Halves = Halves()
    alphas: tuple[float, ...] = (0.05, 0.2, 0.5, 0.7)
    ensemble_size: int = 20

    def units(self) -> Mapping[str, "PeopleLabels"]:
        """Return all in one."""
        return {"all": self}


BANK = BankConfig()
"""The images of the replication's bank, which it computes anyway."""


@dataclass(frozen=True, kw_only=True)
class ShiftedHead:
    """The head beside an ensemble on rotated and corrupted images, and under augmented dyadic draws.

    Everything that is chosen is chosen on test images as they are, after the first ones that are shifted or augmented.

    Attributes:
        depth: depth of the networks.
        size: number of networks, which are the particles of the ensemble.
        num_bases: number of these that carry a sampled head.
        bank: how many images are shifted and augmented.
        num_tuning: images to choose temperatures on.
        temperatures: candidates for what outputs are divided by.
        alpha: share of the exact head.
        field_alpha: share of the sampled head.
        length_scales: how far the fields' knowledge reaches.
        num_samples: number of indices M.
        shifted_blocks: blocks of shifted images that rows are means over.
        dyad_blocks: blocks of pairs under augmented draws.
    """

    depth: int = 20
    size: int = 20
    num_bases: int = 5
    bank: BankConfig = BANK
    num_tuning: int = 2000
    temperatures: tuple[float, ...] = Halves.temperatures
    alpha: float = 0.05
    field_alpha: float = 0.2
    length_scales: tuple[float, ...] = (0.3, 1.0, 3.0)
    num_samples: int = 1000
    shifted_blocks: int = 5
    dyad_blocks: int = 10

    def units(self) -> Mapping[str, "ShiftedHead"]:
        """Return all in one."""
        return {"all": self}
