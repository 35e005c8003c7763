"""The image protocols at the paper's size, and what may be chosen of them: data set and preset."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import UsageError, unknown
from .images import BaselineRecipe, ConvRecipe, EpinetRecipe, ImageStudy, Protocol, Training

DATASETS = ("imagenet", "cifar10", "cifar100", "fashion_mnist", "digits", "digit_pairs", "folder")
"""Names of the data sets that a protocol runs on."""

PRESETS = ("paper", "released")
"""What the text of the paper says, and what the networks are that its authors released."""

# Paper: 4 x 4 TPUs with 128 images each (Appendix G.1).
_BATCH = 2048

_IMAGENET = Protocol(
    dataset="imagenet",
    num_train=None,
    # Paper: does not say on what it tuned; here: on training images that are held out.
    num_validation=10_000,
    num_test=None,
    networks="resnet_v2",
    image_size=224,
    sizes=(50, 101, 152, 200),
    training=Training(
        epochs=90, batch_size=_BATCH, learning_rate=0.1, label_smoothing=0.1, optimizer="sgd", schedule="cosine"
    ),
    epinet=EpinetRecipe(
        index_dim=30,
        hidden=(50,),
        conv=ConvRecipe(channels=(4, 8, 8), kernels=(10, 10, 3), strides=(5, 5, 2)),
        training=Training(epochs=9, batch_size=_BATCH, learning_rate=0.1, label_smoothing=0.1, optimizer="sgd"),
    ),
    baselines=BaselineRecipe(
        dropout_rate=0.05,
        random_features=1024,
        # Reference: 5000 draws; here: fewer, because the loss holds the outputs of all of them.
        het_samples=1000,
        mimo_repeats=2,
        networks="resnet_v1",
        # Reference: batches of 4096 with a rate of 0.1 per 256 images; here: the paper's batch at the same rate.
        training=Training(
            epochs=90, batch_size=_BATCH, learning_rate=0.8, optimizer="sgd", schedule="steps", warmup_epochs=5
        ),
    ),
    num_augmented=1000,
    ablation=(
        ("index dimension", (2, 16, 50)),
        ("hidden layers", (2,)),
        ("matched prior scale", (0.0, 0.3, 5.0)),
        ("conv prior scale", (0.0, 0.3, 5.0)),
        ("L2 decay", (0.0, 1e-3, 1e-2)),
        ("index samples", (1, 2, 10)),
        ("label smoothing", (0.0, 0.01)),
        ("temperature", (0.3, 0.5, 0.7, 1.5)),
    ),
    num_seeds=1,
)

# Paper: "the same methodology", without a batch size; here: that of one device, because 50,000 images are 24 batches of
# 2048.
_CIFAR_TRAINING = replace(_IMAGENET.training, batch_size=128)

_CIFAR = replace(
    _IMAGENET,
    dataset="cifar10",
    num_validation=5000,
    networks="cifar_resnet",
    image_size=32,
    sizes=(18, 32, 44, 56, 110),
    training=_CIFAR_TRAINING,
    epinet=replace(
        _IMAGENET.epinet,
        index_dim=20,
        conv=ConvRecipe(kernels=(5, 5, 5)),
        training=replace(_IMAGENET.epinet.training, batch_size=128),
    ),
    baselines=BaselineRecipe(dropout_rate=0.05, random_features=1024, het_samples=1000, mimo_repeats=2),
    num_seeds=3,
)

# Scales and temperatures of the released networks, where they are not the paper's.
_RELEASED: Mapping[str, Mapping[str, float | bool]] = {
    "imagenet": {"base_temperature": 0.8, "temperature": 0.7, "tuned": False},
    "cifar10": {"prior_scale": 4.0, "conv_scale": 0.0, "tuned": False},
    "cifar100": {"prior_scale": 0.5, "conv_scale": 0.5, "tuned": False},
}


def full_protocol(dataset: str, preset: str = "paper") -> Protocol:
    """Return the protocol of a data set at the paper's size.

    Images of folders have the networks of ImageNet, all others those of CIFAR.
    """
    large = dataset in ("imagenet", "folder")
    protocol = replace(_IMAGENET if large else _CIFAR, dataset=dataset)
    if preset == "paper":
        return protocol
    if dataset not in _RELEASED:
        raise UsageError(f"`--preset` released must go with one of {', '.join(_RELEASED)}; got {dataset}.")
    return replace(protocol, epinet=replace(protocol.epinet, **_RELEASED[dataset]))  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What the command line chooses of a protocol.

    Attributes:
        dataset: name of a data set; empty for that of the tier.
        preset: one of `PRESETS`.
    """

    dataset: str = ""
    preset: str = "paper"

    def __post_init__(self):
        """Raise unless the names are known."""
        if self.dataset and self.dataset not in DATASETS:
            raise unknown("--dataset", self.dataset, DATASETS)
        if self.preset not in PRESETS:
            raise unknown("--preset", self.preset, PRESETS)

    @property
    def name(self) -> str:
        """What the output folder is called beside its tier; empty for the default."""
        return "-".join([part for part in (self.dataset, self.preset) if part and part != "paper"])

    @property
    def options(self) -> list[str]:
        """The options of the command line that choose it."""
        preset = [f"--preset {self.preset}"] if self.preset != "paper" else []
        return ([f"--dataset {self.dataset}"] if self.dataset else []) + preset

    def words(self, tier: str) -> str:
        """Return what the corner of a figure says of it; empty for the default."""
        data = [f"tier {tier} · {self.dataset} instead of the paper's data"] if self.dataset else []
        return " · ".join(data + ([f"preset {self.preset}"] if self.preset != "paper" else []))

    def apply(self, study: ImageStudy, tier: str) -> ImageStudy:
        """Return an image figure with this choice, at a tier that it is already of."""
        if tier == "paper":
            return replace(study, protocol=full_protocol(self.dataset or study.full, self.preset))
        if self.preset != "paper":
            raise UsageError(f"`--preset` is for `--tier paper`; got `--tier {tier}`.")
        if self.dataset == "imagenet":
            raise UsageError(
                f"`--dataset imagenet` is for `--tier paper`; at tier {tier}, `--dataset folder` takes it."
            )
        return replace(study, protocol=replace(study.protocol, dataset=self.dataset or study.protocol.dataset))


DEFAULT = Variant()
"""The data set and the preset of a tier."""
