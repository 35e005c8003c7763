"""Real CIFAR-10 from the shipped bank: trained ResNets of four depths, ensembles, epinets and the exact head."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .banked import Folds, StoredEpinet

# Networks need to be cooled less and warmed more than their epinets.
_TEMPERATURES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5, 1.8, 2.1, 2.4, 2.8)

CIFAR_FOLDS = Folds(num_tuning=1000, temperatures=_TEMPERATURES)
"""Five folds of 2000 test images each."""

# Nine epochs of the seven thousand images that a fold trains on, as in the paper.
_PAPER = StoredEpinet(index_dim=20, num_steps=630)

RECIPES = {"paper": _PAPER, "released": replace(_PAPER, prior_scale=4.0)}
"""The paper's prior scale on ImageNet, and that of the authors' checkpoint for CIFAR-10, both without a conv prior."""


@dataclass(frozen=True, kw_only=True)
class StoredNetworks:
    """The networks of the bank.

    Attributes:
        sizes: number of networks of each depth, the particles' depth first.
        num_bases: number of each depth, the first ones, whose features are stored.
    """

    sizes: tuple[tuple[int, int], ...] = ((20, 20), (32, 5), (44, 4), (56, 8))
    num_bases: int = 2

    def names(self, depth: int) -> tuple[str, ...]:
        """Return the names of all networks of a depth."""
        return tuple(f"resnet{depth}_{number:02d}" for number in range(dict(self.sizes)[depth]))

    @property
    def bases(self) -> tuple[str, ...]:
        """Networks that epinets and fields can be put on."""
        return tuple(name for depth, _ in self.sizes for name in self.names(depth)[: self.num_bases])


CIFAR_NETWORKS = StoredNetworks()
"""All 37."""


@dataclass(frozen=True, kw_only=True)
class CifarScaling:
    """Networks, ensembles, epinets and the Pitman-Yor head over their parameters.

    Attributes:
        networks: the networks.
        folds: the folds.
        ensemble_sizes: numbers of particles, of the first depth.
        num_subsets: random subsets of each size.
        recipes: the epinets, by name.
        alpha: aleatoric share of the Pitman-Yor head.
        num_samples: number of indices M.
    """

    networks: StoredNetworks = CIFAR_NETWORKS
    folds: Folds = CIFAR_FOLDS
    ensemble_sizes: tuple[int, ...] = (3, 5, 10, 20)
    num_subsets: int = 10
    recipes: tuple[tuple[str, StoredEpinet], ...] = tuple(RECIPES.items())
    alpha: float = 0.1
    num_samples: int = 1000

    def units(self) -> Mapping[str, "CifarScalingPart"]:
        """Return the single networks, the ensembles, and the epinets of each base."""
        parts = {"networks": "", "ensembles": "", **{f"epinets-{name}": name for name in self.networks.bases}}
        return {
            unit: CifarScalingPart(study=self, part=unit.partition("-")[0], network=name)
            for unit, name in parts.items()
        }


@dataclass(frozen=True, kw_only=True)
class CifarScalingPart:
    """One unit: all networks, all ensembles, or the epinets of one network."""

    study: CifarScaling
    part: str
    network: str
