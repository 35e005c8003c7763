"""The data sets that an image protocol can run on, as sources of the library's pipelines."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from epinet_eqx.data import (
    AUGMENTED_DYADIC,
    CIFAR10_NORMALIZATION,
    CIFAR10_TRAIN,
    CIFAR100_NORMALIZATION,
    CIFAR100_TRAIN,
    IMAGENET_NORMALIZATION,
    CenterCrop,
    ImageFolder,
    Normalization,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    RecordSource,
    Source,
    Transform,
    cifar,
    digit_pairs,
    digits,
    fashion_mnist,
)

from ..configs.images import Protocol
from ..errors import ReproduceError
from ..inputs import Inputs


class Shift:
    """Move an image by a fraction of a pixel in each direction: what a crop is to an image with few pixels."""

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the moved image."""
        for axis in (1, 2):
            share, step = rng.uniform(0, 0.5), rng.choice((-1, 1))
            image = (1 - share) * image + share * np.roll(image, step, axis=axis)
        return image.astype(np.float32)


class Facts(NamedTuple):
    """What is known of a data set before it is read: numbers of examples and classes, shape of an image."""

    num_train: int
    num_test: int
    num_classes: int
    image_shape: tuple[int, int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """A data set: two sources, and what is done to their images.

    Attributes:
        train: training examples.
        test: test examples.
        facts: their numbers and shapes.
        decode: applied to an image for evaluation.
        augment: applied to an image for training, instead.
        perturb: applied to each draw of augmented dyadic sampling, after `decode`.
        normalization: turns pixels into numbers, at last.
    """

    train: Source
    test: Source
    facts: Facts
    decode: tuple[Transform, ...] = ()
    augment: tuple[Transform, ...] = ()
    perturb: tuple[Transform, ...] = AUGMENTED_DYADIC
    normalization: Normalization | None = None


class Selected:
    """Some examples of a source, which keep their numbers."""

    def __init__(self, source: Source, positions: np.ndarray):
        """Initialize with a source, and the positions of the examples in it."""
        self.source = source
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example."""
        return self.source[int(self.positions[position])]

    def describe(self, position: int) -> str:
        """Return what an error message calls one example."""
        return self.source.describe(int(self.positions[position]))


class Prepared:
    """A source whose images are as a network sees them in evaluation: decoded and normalized."""

    def __init__(self, source: Source, decode: Sequence[Transform], normalization: Normalization | None):
        """Initialize with a source, and what is done to its images; nothing in it may be random."""
        self.source = source
        self.decode = tuple(decode)
        self.normalization = normalization

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return one example."""
        example = dict(self.source[position])
        for transform in self.decode:
            example["x"] = transform(example["x"], np.random.default_rng(position))
        if self.normalization is not None:
            example["x"] = self.normalization(example["x"])
        return example

    def describe(self, position: int) -> str:
        """Return what an error message calls one example."""
        return self.source.describe(position)


def _digits(inputs: Inputs, size: int, key: PRNGKeyArray) -> Images:
    train, test = digits("train"), digits("test")
    return Images(train=train, test=test, facts=FACTS["digits"], perturb=(Shift(),))


def _digit_pairs(inputs: Inputs, size: int, key: PRNGKeyArray) -> Images:
    facts = FACTS["digit_pairs"]
    train, test = digit_pairs("train", facts.num_train, key=key), digit_pairs("test", facts.num_test, key=key)
    return Images(train=train, test=test, facts=facts, perturb=(Shift(),))


def _cifar(name: Any, augment: tuple[Transform, ...], normalization: Normalization) -> Callable[..., Images]:
    def read(inputs: Inputs, size: int, key: PRNGKeyArray) -> Images:
        path = inputs.require("data_dir", expected=_EXPECTED[name])
        train, test = cifar(path, "train", name=name), cifar(path, "test", name=name)
        facts = FACTS[name]._replace(num_train=len(train), num_test=len(test))
        return Images(train=train, test=test, facts=facts, augment=augment, normalization=normalization)

    return read


def _fashion_mnist(inputs: Inputs, size: int, key: PRNGKeyArray) -> Images:
    path = inputs.require("data_dir", expected=_EXPECTED["fashion_mnist"])
    train, test = fashion_mnist(path, "train"), fashion_mnist(path, "test")
    facts = FACTS["fashion_mnist"]._replace(num_train=len(train), num_test=len(test))
    augment = (RandomCrop(padding=2), RandomFlip())
    return Images(train=train, test=test, facts=facts, augment=augment, normalization=Normalization((0.286,), (0.353,)))


def _split(path: Path, names: Sequence[str], expected: str) -> Path:
    """Return the folder of a split under one of its usual names."""
    for name in names:
        if (path / name).is_dir():
            return path / name
    found = sorted(entry.name for entry in os.scandir(path))[:5]
    raise ReproduceError(
        f"`--data-dir` must hold a folder {' or '.join(names)}; {path} holds {', '.join(found) or 'nothing'}. "
        f"Expected {expected}."
    )


def _source(path: Path) -> tuple[Any, tuple[str, ...] | None]:
    """Return the images of a split, as files or as the library's records, and the names of the classes if known."""
    if (path / "records.json").is_file():
        return RecordSource(path), None
    source = ImageFolder(path)
    return source, source.classes


def _folder(name: str) -> Callable[..., Images]:
    def read(inputs: Inputs, size: int, key: PRNGKeyArray) -> Images:
        path = inputs.require("data_dir", expected=_EXPECTED[name])
        (train, classes), (test, test_classes) = (
            _source(_split(path, names, _EXPECTED[name])) for names in (("train",), ("val", "validation", "test"))
        )
        if classes != test_classes:
            first = sorted(set(classes or ()) ^ set(test_classes or ()))[:1]
            raise ReproduceError(
                f"`--data-dir` must have the same classes in both splits; {path} has {train.num_classes} for training "
                f"and {test.num_classes} for testing{f', and {first[0]} in one only' if first else ''}."
            )
        if name == "imagenet" and train.num_classes != FACTS["imagenet"].num_classes:
            raise ReproduceError(
                f"`--data-dir` must hold the 1000 classes of ImageNet; {path} holds {train.num_classes}. "
                "`--dataset folder` takes any number."
            )
        known = FACTS["imagenet"]
        if name == "imagenet" and (len(train), len(test)) != (known.num_train, known.num_test):
            raise ReproduceError(
                f"`--data-dir` must hold the {known.num_train} training and {known.num_test} validation images of "
                f"ImageNet; {path} holds {len(train)} and {len(test)}. `--dataset folder` takes any number."
            )
        facts = Facts(len(train), len(test), train.num_classes, (3, size, size))
        return Images(
            train=train,
            test=test,
            facts=facts,
            decode=(CenterCrop(size, border=size // 7),),
            augment=(RandomResizedCrop(size), RandomFlip()),
            normalization=IMAGENET_NORMALIZATION,
        )

    return read


_EXPECTED = {
    "imagenet": (
        "ImageNet as it is distributed, with train/ and val/ and in each a folder per class, such as "
        "train/n01440764/n01440764_10026.JPEG; get ILSVRC2012 from image-net.org and sort the validation images into "
        "folders"
    ),
    "folder": "folders train/ and val/, in each a folder per class with images as JPEG or PNG",
    "cifar10": (
        "CIFAR-10 in its binary or python version, such as cifar-10-batches-bin/; get it with "
        "`python -m epinet_eqx.data fetch cifar10 --to DIR`"
    ),
    "cifar100": (
        "CIFAR-100 in its binary or python version, such as cifar-100-binary/; get it with "
        "`python -m epinet_eqx.data fetch cifar100 --to DIR`"
    ),
    "fashion_mnist": (
        "the four IDX files of Fashion-MNIST, such as train-images-idx3-ubyte.gz; Debian's package "
        "dataset-fashion-mnist has them"
    ),
}

FACTS = {
    "imagenet": Facts(1_281_167, 50_000, 1000, (3, 224, 224)),
    "cifar10": Facts(50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": Facts(50_000, 10_000, 100, (3, 32, 32)),
    "fashion_mnist": Facts(60_000, 10_000, 10, (1, 28, 28)),
    "digits": Facts(1437, 360, 10, (1, 8, 8)),
    "digit_pairs": Facts(10_000, 2000, 100, (1, 8, 16)),
}

_READERS: dict[str, Callable[[Inputs, int, PRNGKeyArray], Images]] = {
    "imagenet": _folder("imagenet"),
    "folder": _folder("folder"),
    "cifar10": _cifar("cifar10", CIFAR10_TRAIN, CIFAR10_NORMALIZATION),
    "cifar100": _cifar("cifar100", CIFAR100_TRAIN, CIFAR100_NORMALIZATION),
    "fashion_mnist": _fashion_mnist,
    "digits": _digits,
    "digit_pairs": _digit_pairs,
}


def open_images(protocol: Protocol, inputs: Inputs, *, key: PRNGKeyArray) -> Images:
    """Return the data set of a protocol; what cannot be read is told in a sentence that says what was expected.

    Args:
        protocol: the protocol.
        inputs: the folder that the command line names.
        key: random key of data that are drawn.
    """
    try:
        return _READERS[protocol.dataset](inputs, protocol.image_size, key)
    except (OSError, ValueError, ImportError) as error:
        expected = f" Expected {_EXPECTED[protocol.dataset]}." if protocol.dataset in _EXPECTED else ""
        raise ReproduceError(f"{protocol.dataset} cannot be read from {inputs.data_dir}: {error}{expected}") from error


def known_facts(protocol: Protocol, inputs: Inputs) -> Facts | None:
    """Return numbers and shapes of a data set where they are public and no folder was named."""
    return FACTS.get(protocol.dataset) if inputs.data_dir is None else None


class Shares(NamedTuple):
    """The examples of one seed."""

    train: Selected
    validation: Selected
    test: Selected


def sizes_of(protocol: Protocol, facts: Facts) -> tuple[int, int, int]:
    """Return how many examples are for training, for choices and for testing; an even number of the last two."""
    held_out = 2 * (min(protocol.num_validation, facts.num_train // 2) // 2)
    rest = facts.num_train - held_out
    train = rest if protocol.num_train is None else min(protocol.num_train, rest)
    test = facts.num_test if protocol.num_test is None else min(protocol.num_test, facts.num_test)
    return train, held_out, 2 * (test // 2)


def share(images: Images, protocol: Protocol, seed: int, *, key: PRNGKeyArray) -> Shares:
    """Return the examples of one seed: which are held out and tested on is the same for all."""
    num_train, held_out, num_test = sizes_of(protocol, images.facts)
    if min(num_train, held_out, num_test) < 2:
        raise ReproduceError(
            f"{protocol.dataset} must have at least 4 training and 2 test examples; got {images.facts.num_train} "
            f"and {images.facts.num_test}."
        )
    order = np.asarray(jr.permutation(jr.fold_in(key, 0), images.facts.num_train))
    rest = order[held_out:]
    if num_train < len(rest):
        rest = rest[np.asarray(jr.permutation(jr.fold_in(key, 2 + seed), len(rest)))[:num_train]]
    # Classes of a folder come one after the other: neighbors that make a pair are drawn.
    test = np.asarray(jr.permutation(jr.fold_in(key, 1), images.facts.num_test))[:num_test]
    return Shares(
        Selected(images.train, np.sort(rest)), Selected(images.train, order[:held_out]), Selected(images.test, test)
    )
