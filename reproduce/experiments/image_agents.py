"""What an image protocol is made of: a seed, the agents that are scored, and a backend that trains their networks."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.combinators import OnTrunk
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import AbstractNetwork
from epinet_eqx.training import EpistemicObjective

from ..configs import images
from ..inputs import NOTHING, Inputs

Batches = Callable[[str], Iterator[Batch]]
"""From the name of a split (validation, test, augmented) to its batches; pairs and groups are never cut."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seed:
    """One seed of a protocol. Everything is a function of the key and the seed, whatever is asked for first."""

    protocol: images.Protocol
    number: int
    key: PRNGKeyArray
    inputs: Inputs = NOTHING

    def key_of(self, name: str, *, shared: bool = False) -> PRNGKeyArray:
        """Return a stream of keys of this seed, or of all seeds."""
        (found,) = named_keys(self.key if shared else jr.fold_in(self.key, self.number), name)
        return found

    def place(self, name: str, *configs: Any) -> Path | None:
        """Return where a network is kept: its own place for each configuration; None if nothing is kept.

        Args:
            name: what the network is called.
            configs: dataclasses and numbers that it depends on, beside the data.
        """
        if self.inputs.networks is None:
            return None
        protocol = self.protocol
        data = (protocol.dataset, protocol.num_train, protocol.num_validation, protocol.image_size, protocol.networks)
        parts = [dataclasses.asdict(part) if dataclasses.is_dataclass(part) else part for part in configs]  # pyright: ignore
        digest = hashlib.sha256(json.dumps([data, self.number, parts], sort_keys=True).encode()).hexdigest()
        return self.inputs.networks / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-{self.number}-{digest[:12]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agent:
    """A method of some size, ready to be scored.

    Attributes:
        name: name of the method.
        size: size of its network, or its number of particles.
        enn: the ENN that is evaluated.
        batches: its inputs: images, or what was computed from them before.
        counted: the ENN whose parameters and operations count.
        copies: how often they count.
    """

    name: str
    size: int
    enn: AbstractENN
    batches: Batches
    counted: AbstractENN
    copies: int = 1


def loss_of(training: images.Training) -> CrossEntropy:
    """Return the loss that a training stands for."""
    return CrossEntropy(l2=training.l2, label_smoothing=training.label_smoothing)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Untrained:
    """An ENN that is to be trained.

    Attributes:
        name: what it is called.
        build: makes it.
        training: how it is trained.
        num_index_samples: index samples per step.
        recipe: what it is made by: it tells it from others of this name, also among those that are kept.
        key: random key.
    """

    name: str
    build: Callable[[], AbstractENN]
    training: images.Training
    num_index_samples: int = 1
    recipe: images.EpinetRecipe | images.BaselineRecipe | None = None
    key: PRNGKeyArray

    @property
    def objective(self) -> EpistemicObjective:
        """What is minimized."""
        return EpistemicObjective(loss_of(self.training), num_index_samples=self.num_index_samples)

    @property
    def settings(self) -> list[Any]:
        """What its place depends on beside the training."""
        return [self.num_index_samples, *([self.recipe] if self.recipe else [])]


class Trainer(Protocol):
    """What is done with a training that is asked for: it is run, or noted in a plan (`image_plan.Planner`)."""

    def __call__(self, train: Callable[[], Any], plan: Callable[[], tuple[Any, Any]]) -> Any:
        """Return what was trained, or what stands for it.

        Args:
            train: trains.
            plan: returns the training as a plan lists it, or None for what follows from others, and what stands for
                its result.
        """
        ...


def run_training(train: Callable[[], Any], plan: Callable[[], tuple[Any, Any]]) -> Any:
    """Train."""
    del plan
    return train()


class Backend(Protocol):
    """How networks are made and trained: all that differs between tiers."""

    seed: Seed
    trainer: Trainer

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        ...

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        ...

    @property
    def example(self) -> Array:
        """One input of zeros, for its shape."""
        ...

    def batches(self, split: str) -> Iterator[Batch]:
        """Yield the images of a split."""
        ...

    def base(self, size: int) -> AbstractNetwork:
        """Return a trained network of a size; the smallest is the first particle."""
        ...

    def alone(self, size: int, network: AbstractNetwork) -> Agent:
        """Return the base network of a size as an agent."""
        ...

    def ensemble(self, size: int) -> Agent:
        """Return the ensemble of the first particles."""
        ...

    def fit(self, wanted: Untrained) -> Any:
        """Return an ENN, trained."""
        ...

    def dropout(self) -> AbstractENN:
        """Return a trained network with dropout; one mask per index."""
        ...

    def mimo(self) -> AbstractENN:
        """Return a trained network of two inputs and two outputs."""
        ...

    def on_trunk(
        self, name: str, make_head: Callable[[int, PRNGKeyArray], AbstractENN], *, bounded: bool = False
    ) -> OnTrunk:
        """Return an ENN on the features of a network, both trained together.

        Args:
            name: what it is called.
            make_head: makes the ENN from the number of features and a key.
            bounded: whether the layers of the network are spectrally bounded.
        """
        ...

    def posterior(self, enn: OnTrunk) -> AbstractENN:
        """Return an `SNGP` on a trunk with the posterior of its output weights given the training data."""
        ...

    def pictures(self, kind: str) -> Any:
        """Return dyadic batches to look at, "dyadic" or "augmented"; pixels from 0 to 1."""
        ...
