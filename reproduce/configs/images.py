"""Configurations of the image artifacts (Section 6, Appendices E and G)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a network is trained.

    Attributes:
        epochs: passes over the training data.
        batch_size: examples per step, over all devices.
        learning_rate: the largest learning rate.
        l2: strength of the L2 penalty.
        label_smoothing: the wrong classes share this weight.
        optimizer: "adam", or "sgd" with Nesterov momentum 0.9.
        schedule: how the learning rate goes on: "constant", "cosine", or "steps" (a tenth at 1/3, 2/3 and 8/9 of the
            training).
        warmup_epochs: passes over the data in which the learning rate rises.
    """

    epochs: int
    batch_size: int = 100
    learning_rate: float = 1e-3
    l2: float = 1e-4
    label_smoothing: float = 0.0
    optimizer: str = "adam"
    schedule: str = "constant"
    warmup_epochs: int = 0


@dataclass(frozen=True, kw_only=True)
class ConvRecipe:
    """The small conv nets of an epinet's second prior; the default is for images of few pixels."""

    channels: tuple[int, ...] = (4, 8, 4)
    kernels: tuple[int, ...] = (3, 3, 3)
    strides: tuple[int, ...] = (2, 2, 2)


@dataclass(frozen=True, kw_only=True)
class EpinetRecipe:
    """An epinet on a frozen base (Appendix G.1).

    Attributes:
        index_dim: dimension of the index.
        hidden: sizes of the hidden layers.
        prior_scale: scale of the matched prior, of the epinet's own architecture.
        conv_scale: scale of the ensemble of small conv nets on the image.
        conv: these conv nets.
        num_index_samples: index samples per step.
        base_temperature: divides the outputs of the base network inside the ENN, in training and after.
        temperature: divides the outputs after training.
        tuned: whether the temperature is chosen on held-out data instead.
        training: how it is trained.
    """

    index_dim: int
    hidden: tuple[int, ...]
    prior_scale: float = 1.0
    conv_scale: float = 1.0
    conv: ConvRecipe = ConvRecipe()
    num_index_samples: int = 5
    base_temperature: float = 1.0
    temperature: float = 1.0
    tuned: bool = True
    training: Training


@dataclass(frozen=True, kw_only=True)
class BaselineRecipe:
    """The four uncertainty baselines (Appendix G.2).

    Attributes:
        dropout_rate: probability of being dropped.
        random_features: number of random features of sngp.
        het_rank: number of factors of the covariance of het.
        het_samples: draws that the loss of het averages over.
        mimo_repeats: tuples of mimo per example.
        networks: the family of networks, as in `Protocol`; empty for that of the base networks.
        training: how they are trained; None for as the base networks.
    """

    dropout_rate: float = 0.1
    random_features: int = 256
    het_rank: int = 15
    het_samples: int = 10
    mimo_repeats: int = 1
    networks: str = ""
    training: Training | None = None


_FIELDS = {
    "index dimension": "index_dim",
    "hidden layers": "hidden",
    "matched prior scale": "prior_scale",
    "conv prior scale": "conv_scale",
    "L2 decay": "l2",
    "index samples": "num_index_samples",
    "label smoothing": "label_smoothing",
    "temperature": "temperature",
}

ABLATION_ROWS = tuple(_FIELDS)
"""The rows of Figure 14."""

Recipe = TypeVar("Recipe")


def changed(recipe: Recipe, factor: str, value: Any) -> Recipe:
    """Return a recipe with another value of one factor.

    Args:
        recipe: any dataclass of an epinet, whatever trains it.
        factor: a row of Figure 14, or a field; also one of how it is trained.
        value: the value; for hidden layers, their number.
    """
    name, own = _FIELDS.get(factor, factor), cast(Any, recipe)
    if not hasattr(own, name):
        return replace(own, training=changed(own.training, name, value))
    before = getattr(own, name)
    if isinstance(before, tuple) and not isinstance(value, tuple):
        return replace(own, **{name: before[:1] * int(value)})
    return replace(own, **{name: int(cast(Any, value)) if type(before) is int else value})


def variants(recipe: Recipe, factors: Iterable[tuple[str, Sequence[Any]]]) -> Iterator[tuple[str, Any, Recipe]]:
    """Yield an ablation: each factor at each of its values, with the recipe that has it."""
    for factor, values in factors:
        for value in values:
            yield factor, value, changed(recipe, factor, value)


def tuned_value(recipe: EpinetRecipe, row: str) -> float:
    """Return the value of a row of Figure 14 in a recipe."""
    name = _FIELDS[row]
    value = getattr(recipe if hasattr(recipe, name) else recipe.training, name)
    return len(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything that is trained on one data set.

    Attributes:
        dataset: name of the data set.
        num_train: training examples; None for all that are not held out.
        num_validation: held-out examples, on which temperatures are chosen.
        num_test: test examples; None for all.
        networks: the family of base networks: "mlp" in memory; "cifar_resnet", "resnet_v1" or "resnet_v2" on a mesh.
        image_size: height and width that images of a folder are decoded to.
        sizes: sizes of the base networks, the smallest first.
        training: how base networks are trained.
        epinet: the epinet.
        baselines: the uncertainty baselines.
        ensemble_sizes: numbers of particles of the smallest size.
        temperatures: the temperatures to choose from.
        sample_counts: numbers of indices M of the curves; figures compare at `num_samples`.
        num_samples: the number of indices M of the figures.
        num_augmented: pairs of the augmented dyadic loss.
        ablation: for each row of Figure 14, the values beside the default.
        num_seeds: how often everything is trained.
    """

    dataset: str
    num_train: int | None
    num_validation: int
    num_test: int | None
    networks: str = "mlp"
    image_size: int = 32
    sizes: tuple[int, ...]
    training: Training
    epinet: EpinetRecipe
    baselines: BaselineRecipe = BaselineRecipe()
    ensemble_sizes: tuple[int, ...] = (1, 3, 10, 30, 100)
    temperatures: tuple[float, ...] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.2, 1.5)
    sample_counts: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000)
    num_samples: int = 1000
    num_augmented: int = 300
    ablation: tuple[tuple[str, tuple[float, ...]], ...] = ()
    num_seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a protocol for one seed: the unit that is kept."""

    protocol: Protocol
    part: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class ImageStudy:
    """An image figure: the parts of a protocol that it shows.

    Attributes:
        protocol: the protocol.
        parts: names of its parts.
        full: name of the data set of the paper, whose protocol is that of tier `paper`.
    """

    protocol: Protocol
    parts: tuple[str, ...]
    full: str

    def units(self) -> Mapping[str, Part]:
        """Return one run per part and seed."""
        return {
            f"{part}-{seed}": Part(protocol=self.protocol, part=part, seed=seed)
            for seed in range(self.protocol.num_seeds)
            for part in self.parts
        }


_ABLATION = (
    ("index dimension", (2, 4, 16)),
    ("hidden layers", (2, 3)),
    ("matched prior scale", (0.0, 0.15, 1.5, 5.0)),
    ("conv prior scale", (0.0, 0.15, 1.5, 5.0)),
    ("L2 decay", (0.0, 1e-3, 1e-2)),
    ("index samples", (1, 2, 10)),
    ("label smoothing", (0.01, 0.1)),
    ("temperature", (0.3, 0.5, 0.7, 1.5)),
)

PAIRS = Protocol(
    dataset="digit_pairs",
    num_train=4000,
    num_validation=1000,
    num_test=1000,
    sizes=(160, 224, 288, 352),
    training=Training(epochs=15),
    epinet=EpinetRecipe(index_dim=8, hidden=(15,), prior_scale=0.5, conv_scale=0.5, training=Training(epochs=10)),
    ablation=_ABLATION,
)
"""What tier laptop has instead of ImageNet: pairs of digits, 100 classes."""

PAIRS_FIVE = replace(PAIRS, sizes=(160, 208, 256, 304, 352), ablation=())
"""What it has instead of CIFAR-100: the same data and five sizes."""

DIGITS = Protocol(
    dataset="digits",
    num_train=200,
    num_validation=400,
    num_test=400,
    sizes=(128, 160, 192, 224, 256),
    training=Training(epochs=100),
    epinet=EpinetRecipe(index_dim=10, hidden=(20,), prior_scale=0.5, conv_scale=0.5, training=Training(epochs=100)),
)
"""What it has instead of CIFAR-10: single digits, few of them."""


def small(protocol: Protocol) -> Protocol:
    """Return a protocol of two sizes, few particles and few steps, which proves the wiring in seconds."""
    short = {"epochs": 2, "batch_size": 50}
    return replace(
        protocol,
        num_train=200,
        num_validation=100,
        num_test=100,
        sizes=protocol.sizes[:2],
        training=replace(protocol.training, **short),
        epinet=replace(protocol.epinet, training=replace(protocol.epinet.training, **short)),
        ensemble_sizes=(1, 3),
        sample_counts=(10, 1000),
        num_augmented=20,
        ablation=(("matched prior scale", (0.0, 5.0)), ("temperature", (0.5,))) if protocol.ablation else (),
        # Another one would compile the same programs in another process.
        num_seeds=1,
    )


@dataclass(frozen=True, kw_only=True)
class CountedCosts:
    """One ResNet of the paper with its epinet, whose operations are counted.

    Attributes:
        depth: its depth.
        epinet: the epinet.
        num_classes: number of classes.
        image_size: height and width of an image.
        sample_counts: numbers of indices M.
        batch_sizes: images of a batch, which share what depends on the index alone.
    """

    depth: int
    epinet: EpinetRecipe
    num_classes: int = 1000
    image_size: int = 224
    sample_counts: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000)
    batch_sizes: tuple[int, ...] = (1, 100)


@dataclass(frozen=True, kw_only=True)
class PaperCosts:
    """The ResNets of Figure 12."""

    epinet: EpinetRecipe
    depths: tuple[int, ...] = (50, 101, 152, 200)

    def units(self) -> Mapping[str, CountedCosts]:
        """Return one run per depth."""
        return {f"resnet{depth:03d}": CountedCosts(depth=depth, epinet=self.epinet) for depth in self.depths}
