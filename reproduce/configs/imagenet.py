"""Configurations of the ImageNet figures that read the shipped bank."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .banked import Folds, StoredEpinet
from .images import ConvRecipe

NETWORKS = (
    "resnet50",
    "efficientnet_lite0",
    "efficientnet_lite1",
    "efficientnet_lite2",
    "mobilenet_v2",
    "mobilenet_v2_keras",
    "squeezenet1_1",
)
"""The networks of the bank; the first is the paper's smallest."""

_TEMPERATURES = (0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5)

_FOLDS = Folds(tuning_samples=300, temperatures=_TEMPERATURES, chunk_size=4)
_RECIPE = StoredEpinet()
_RELEASED = StoredEpinet(base_temperature=0.8)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """The uncertainty baselines that need no training of the trunk; tuples are candidates to choose from.

    Attributes:
        dropout_rates: of dropout on the features.
        random_features: number of random features of sngp.
        sngp_scales: what multiplies the deviations of its output weights.
        het_rank: number of factors of the covariance of het.
        het_samples: draws that the loss of het averages over.
        prior_precisions: of the last-layer Laplace approximation.
        num_particles: number of last layers of the ensemble of heads.
        ensemble_scales: of their random linear priors.
        num_steps: steps of training of het and of the ensemble.
        counts: numbers of indices M; an ensemble has its particles.
        capacity: the epinet whose size and training the head without an index has.
        tuning_samples: number of indices that candidates and temperatures are compared with.
    """

    dropout_rates: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    random_features: int = 1024
    sngp_scales: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    het_rank: int = 5
    het_samples: int = 10
    prior_precisions: tuple[float, ...] = (100.0, 300.0, 1000.0, 3000.0)
    num_particles: int = 5
    ensemble_scales: tuple[float, ...] = (0.3, 1.0)
    num_steps: int = 30
    counts: tuple[int, ...] = (10, 100)
    tuning_samples: int = 50
    capacity: StoredEpinet = _RECIPE


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Figure 14 from the bank.

    Attributes:
        values: for each row, the values beside the default; all but temperatures need epinets of their own.
        num_samples: number of indices M.
        num_folds: how many of the folds are judged.
    """

    values: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {
            "index dimension": (2, 16, 50),
            "hidden layers": (0, 2),
            "matched prior scale": (0.0, 0.3, 5.0),
            "L2 decay": (0.0, 1e-3, 1e-2),
            "index samples": (1, 2, 10),
            "label smoothing": (0.0, 0.01),
            "temperature": (0.3, 0.5, 0.7, 1.5),
        }
    )
    num_samples: int = 300
    num_folds: int = 2

    @property
    def parts(self) -> tuple[str, ...]:
        """The kinds of parts: one for each row, and one for the default at all temperatures."""
        rows = [row for row in self.values if row != "temperature"]
        return "ablation-default", *(f"ablation-{row.replace(' ', '_')}" for row in rows)


_HEADS = Heads()
_ABLATION = Ablation()


@dataclass(frozen=True, kw_only=True)
class Bank:
    """What all units of the ImageNet bank share.

    Attributes:
        folds: the folds, the same for all networks and agents.
        recipe: the paper's epinet, without the prior that reads pixels.
        released: the same with the temperature that the authors' released networks have inside.
        released_temperature: what divides the outputs of these.
        counts: numbers of indices M.
        prior_scales: candidates for the scale of the matched prior, where it is chosen.
        most_excess: by which share the marginal loss may then be above the network's.
        more_counts: those of the networks that are in `long`.
        long: networks whose curves go on.
        alphas: aleatoric shares of the Pitman-Yor head.
        heads: the other heads.
        ablation: the values of Figure 14.
        num_seeds: how many epinets are judged on augmented images.
    """

    folds: Folds = _FOLDS
    recipe: StoredEpinet = _RECIPE
    released: StoredEpinet = _RELEASED
    released_temperature: float = 0.7
    prior_scales: tuple[float, ...] = (0.25, 0.5, 1.0)
    most_excess: float = 0.1
    counts: tuple[int, ...] = (10, 30, 100, 300, 1000)
    more_counts: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000)
    long: tuple[str, ...] = NETWORKS[:1]
    alphas: tuple[float, ...] = (0.05, 0.2, 0.5)
    heads: Heads = _HEADS
    ablation: Ablation = _ABLATION
    num_seeds: int = 3


_BANK = Bank()


@dataclass(frozen=True, kw_only=True)
class BankPart:
    """What is computed at once, and kept.

    Attributes:
        bank: what all share.
        part: its kind.
        networks: the networks; several are an ensemble.
    """

    bank: Bank
    part: str
    networks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BankStudy:
    """An ImageNet figure from the bank.

    Attributes:
        parts: kinds of parts, each of which there is for every network; ensembles are of growing size.
        first_parts: kinds of parts that there are for the first network only.
        ends_parts: kinds of parts that there are for the first and the last network.
        bank: what all share.
        networks: the networks.
        ensembles: order in which networks join the ensemble.
    """

    parts: tuple[str, ...] = ()
    first_parts: tuple[str, ...] = ()
    ends_parts: tuple[str, ...] = ()
    bank: Bank = _BANK
    networks: tuple[str, ...] = NETWORKS
    ensembles: tuple[str, ...] = (
        "resnet50",
        "efficientnet_lite0",
        "mobilenet_v2",
        "efficientnet_lite2",
        "mobilenet_v2_keras",
        "efficientnet_lite1",
        "squeezenet1_1",
    )

    def units(self) -> Mapping[str, BankPart]:
        """Return one run for each part and network, or size of an ensemble; long runs come first."""
        wanted = {f"{part}-{name}": (part, (name,)) for part in self.first_parts for name in self.networks[:1]}
        ends = (self.networks[0], self.networks[-1])
        wanted |= {f"{part}-{name}": (part, (name,)) for part in self.ends_parts for name in ends}
        for part in self.parts:
            if part == "ensemble":
                sizes = range(2, len(self.ensembles) + 1)
                wanted |= {f"{part}-{size}": (part, self.ensembles[:size]) for size in sizes}
            else:
                wanted |= {f"{part}-{name}": (part, (name,)) for name in self.networks}
        return {
            unit: BankPart(bank=self.bank, part=part, networks=networks) for unit, (part, networks) in wanted.items()
        }


_CONV = ConvRecipe(channels=(4, 8, 8), kernels=(10, 10, 3), strides=(5, 5, 2))


@dataclass(frozen=True, kw_only=True)
class ConvRun:
    """Epinets with both of the paper's priors, the one that reads pixels at several scales.

    Attributes:
        network: the network.
        folds: the folds, those of the bank.
        recipe: the epinet; its dimension of the index is the number of conv nets.
        conv: these conv nets.
        scales: of the conv prior.
        num_samples: number of indices M.
        num_folds: how many of the folds are judged.
    """

    network: str = NETWORKS[0]
    folds: Folds = _FOLDS
    recipe: StoredEpinet = _RECIPE
    conv: ConvRecipe = _CONV
    scales: tuple[float, ...] = (0.0, 0.3, 1.0, 5.0)
    num_samples: int = _ABLATION.num_samples
    num_folds: int = _ABLATION.num_folds


_CONV_RUN = ConvRun()


@dataclass(frozen=True, kw_only=True)
class ConvScales:
    """The row of Figure 14 that needs pixels."""

    run: ConvRun = _CONV_RUN

    def units(self) -> Mapping[str, ConvRun]:
        """Return the only run: what the conv nets say of the images is computed once."""
        return {"conv": self.run}


@dataclass(frozen=True, kw_only=True)
class PhotographsRun:
    """Batches of the two photographs of Figure 7.

    Attributes:
        size: height and width that they are resized to, the networks' own.
        num_batches: batches of each kind.
    """

    size: int = 224
    num_batches: int = 3


_PHOTOGRAPHS = PhotographsRun()


@dataclass(frozen=True, kw_only=True)
class Photographs:
    """Figure 7 on photographs."""

    run: PhotographsRun = _PHOTOGRAPHS

    def units(self) -> Mapping[str, PhotographsRun]:
        """Return the only run."""
        return {"photographs": self.run}
