"""Image protocols in memory: multi-layer perceptrons on images as vectors, trained by `fit`."""

import dataclasses
import functools as ft
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, load, named_keys, save
from epinet_eqx.bayes import Deterministic, Ensemble
from epinet_eqx.data import AugmentedDyads, Normalization
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP, AbstractNetwork
from epinet_eqx.training import EpistemicObjective, EpochBatches, fit, fit_ensemble, init_state, train_step

from ..configs.images import EpinetRecipe, Training
from .image_agents import Agent, Seed
from .image_data import Splits, read_splits
from .image_plan import Planner


def settings_of(training: Training, num_train: int) -> dict[str, Any]:
    """Return the arguments of `fit` that a training stands for."""
    return {
        "num_steps": training.epochs * num_train // training.batch_size,
        "batch_size": training.batch_size,
        "sampling": EpochBatches,
        "optimizer": optax.adam(training.learning_rate),
        "progress": False,
    }


def loss_of(training: Training) -> CrossEntropy:
    """Return the loss that a training stands for."""
    return CrossEntropy(l2=training.l2, label_smoothing=training.label_smoothing)


def kept(path: Path | None, like: Any, train: Callable[[], Any]) -> Any:
    """Return a trained model from its file; if there is none, train it and write one.

    Args:
        path: the file without its suffix; None to keep nothing.
        like: a model of the same structure.
        train: returns the trained model.
    """
    if path is None:
        return train()
    file = path.with_name(f"{path.name}.safetensors")
    if file.is_file():
        return load(file, like)
    model = train()
    file.parent.mkdir(parents=True, exist_ok=True)
    save(file, model)
    return model


@dataclasses.dataclass(frozen=True)
class _Undone:
    """Turn normalized pixels back into pixels from 0 to 1."""

    normalization: Normalization

    def __call__(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the pixels."""
        mean, std = (np.asarray(part)[:, None, None] for part in (self.normalization.mean, self.normalization.std))
        return image * std + mean


class MemoryBackend:
    """Data and networks in memory; ensembles are trained as one program."""

    def __init__(self, seed: Seed, planner: Planner | None = None):
        """Initialize with a seed; with a planner, nothing is trained, and it is told of all that would be."""
        self.seed = seed
        self.planner = planner

    @ft.cached_property
    def data(self) -> Splits:
        """The data."""
        return read_splits(
            self.seed.protocol, self.seed.number, self.seed.inputs, key=self.seed.key_of("data", shared=True)
        )

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.data.num_classes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return self.data.image_shape

    @property
    def num_pixels(self) -> int:
        """The size of an input."""
        return math.prod(self.image_shape)

    @property
    def example(self) -> Array:
        """One input of zeros, for its shape."""
        return jnp.zeros(self.num_pixels)

    @property
    def num_train(self) -> int:
        """The number of training examples."""
        return self.data.train.y.shape[0]

    @ft.cached_property
    def _augmented(self) -> Batch:
        dyads = AugmentedDyads(self.data.test, transforms=self.data.perturb, key=self.seed.key_of("augmented"))
        drawn = [dyads[number] for number in range(min(self.seed.protocol.num_augmented, len(dyads)))]
        x = np.concatenate([group["x"].reshape(len(group["y"]), -1) for group in drawn])
        return Batch(x, *(np.concatenate([group[name] for group in drawn]) for name in ("y", "i")))

    def batches(self, split: str) -> Iterator[Batch]:
        """Yield all of a split at once."""
        yield {"validation": self.data.validation, "test": self.data.test_batch}.get(split) or self._augmented

    def make_network(self, size: int, key: PRNGKeyArray) -> MLP:
        """Return a base network of a size: two hidden layers, of which the last one is the features."""
        return MLP(self.num_pixels, self.num_classes, (size, size), feature_layers=(-1,), key=key)

    def fit(
        self,
        name: str,
        build: Callable[[], AbstractENN],
        training: Training,
        *,
        num_index_samples: int = 1,
        recipe: EpinetRecipe | None = None,
        key: PRNGKeyArray,
    ) -> Any:
        """Return an ENN trained on the training data of this seed."""
        enn = build()
        if self.planner is not None:
            self.plan(name, enn, training, num_index_samples=num_index_samples, recipe=recipe)
            return enn

        def train() -> Any:
            options = {**settings_of(training, self.num_train), "num_index_samples": num_index_samples}
            return fit(enn, self.data.train, loss_of(training), **options, key=key).enn

        return kept(self.seed.place(name, training, num_index_samples, *([recipe] if recipe else [])), enn, train)

    def plan(
        self, name: str, enn: AbstractENN, training: Training, *, loss: Any = None, data: Any = None, **more: Any
    ) -> None:
        """Tell the planner of a training.

        Args:
            name: what is trained.
            enn: the ENN before training.
            training: how it is trained.
            loss: its loss, by default that of the training.
            data: examples, by default those for training.
            more: `num_index_samples`, and the number of `copies`.
        """
        assert self.planner is not None
        settings = settings_of(training, self.num_train)
        objective = EpistemicObjective(
            loss_of(training) if loss is None else loss, num_index_samples=more.get("num_index_samples", 1)
        )
        optimizer = settings["optimizer"]
        batch = jax.tree.map(lambda leaf: leaf[: training.batch_size], self.data.train if data is None else data)
        arrays, rest = eqx.partition(init_state(enn, optimizer, key=self.seed.key_of(f"planned {name}")), eqx.is_array)

        def step(arrays: Any, batch: Batch) -> Any:
            new, metrics = train_step(eqx.combine(arrays, rest), batch, objective, optimizer)
            return eqx.filter(new, eqx.is_array), metrics["loss"]

        copies, steps = more.get("copies", 1), settings["num_steps"]
        self.planner.add(name, step, (arrays, batch), steps=steps, copies=copies, kept=enn, detail=more.get("recipe"))

    @ft.cached_property
    def particles(self) -> Ensemble:
        """The largest ensemble of the smallest network; the smaller ensembles are its first particles."""
        protocol, training = self.seed.protocol, self.seed.protocol.training
        count, size = max(protocol.ensemble_sizes), protocol.sizes[0]
        # Its values are used by no one.
        keys = jax.random.split(self.seed.key_of("like"), count)
        like = Ensemble(eqx.filter_vmap(lambda key: self.make_network(size, key))(keys))
        if self.planner is not None:
            network = self.make_network(size, self.seed.key_of("planned"))
            self.plan(f"particle {size}", Deterministic(network), training, copies=count)
            return like

        def train() -> Ensemble:
            return fit_ensemble(
                lambda key: self.make_network(size, key),
                self.data.train,
                loss_of(training),
                num_particles=count,
                **settings_of(training, self.num_train),
                key=self.seed.key_of("particles"),
            ).model

        return kept(self.seed.place("particles", training, size, count), like, train)

    def base(self, size: int) -> AbstractNetwork:
        """Return a trained network of a size; the smallest is the first particle."""
        if size == self.seed.protocol.sizes[0]:
            return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, self.particles.particles)
        init_key, fit_key = named_keys(self.seed.key_of(f"base {size}"), "init", "fit")
        training = self.seed.protocol.training
        return self.fit(
            f"base {size}", lambda: Deterministic(self.make_network(size, init_key)), training, key=fit_key
        ).network

    def alone(self, size: int, network: AbstractNetwork) -> Agent:
        """Return the base network of a size as an agent."""
        enn = Deterministic(network)
        return Agent(name="resnet", size=size, enn=enn, batches=self.batches, counted=enn)

    def ensemble(self, size: int) -> Agent:
        """Return the ensemble of the first particles."""
        particles = jax.tree.map(lambda leaf: leaf[:size] if eqx.is_array(leaf) else leaf, self.particles.particles)
        enn = Ensemble(particles)
        return Agent(name="ensemble", size=size, enn=enn, batches=self.batches, counted=enn)

    def baseline(self, name: str) -> AbstractENN:
        """Return a trained baseline."""
        from .image_memory_baselines import BASELINES

        return BASELINES[name](self, self.seed.key_of(name))

    def pictures(self, kind: str) -> AugmentedDyads:
        """Return dyadic batches to look at."""
        transforms = self.data.perturb if kind == "augmented" else ()
        if self.data.normalization is not None:
            transforms = (*transforms, _Undone(self.data.normalization))
        return AugmentedDyads(self.data.test, transforms=transforms, key=self.seed.key_of("grids"))
