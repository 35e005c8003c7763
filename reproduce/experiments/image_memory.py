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
from epinet_eqx.baselines import MIMO, MIMOLoss, SpectrallyBounded, mimo_batch, with_posterior
from epinet_eqx.bayes import Deterministic, Ensemble, dropout_mlp
from epinet_eqx.combinators import OnTrunk
from epinet_eqx.data import AugmentedDyads, Normalization
from epinet_eqx.losses import Batch
from epinet_eqx.networks import MLP, AbstractNetwork, headless
from epinet_eqx.training import EpistemicObjective, EpochBatches, fit, fit_ensemble, init_state, train_step

from ..configs.images import Training
from .image_agents import Agent, Seed, Trainer, Untrained, loss_of, run_training
from .image_data import Splits, read_splits
from .image_plan import Planned, num_bytes


def settings_of(training: Training, num_train: int) -> dict[str, Any]:
    """Return the arguments of `fit` that a training stands for."""
    return {
        "num_steps": training.epochs * num_train // training.batch_size,
        "batch_size": training.batch_size,
        "sampling": EpochBatches,
        "optimizer": optax.adam(training.learning_rate),
        "progress": False,
    }


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

    def __init__(self, seed: Seed, trainer: Trainer = run_training):
        """Initialize with a seed, and what is done with trainings."""
        self.seed = seed
        self.trainer = trainer

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

    def fit(self, wanted: Untrained) -> Any:
        """Return an ENN trained on the training data of this seed."""
        enn, objective, training = wanted.build(), wanted.objective, wanted.training

        def train() -> Any:
            options = {**settings_of(training, self.num_train), "num_index_samples": wanted.num_index_samples}
            return fit(enn, self.data.train, loss_of(training), **options, key=wanted.key).enn

        place = self.seed.place(wanted.name, training, *wanted.settings)
        return self.trainer(
            lambda: kept(place, enn, train),
            lambda: (self._planned(wanted.name, enn, training, objective, detail=wanted.recipe), enn),
        )

    def _planned(
        self,
        name: str,
        enn: AbstractENN,
        training: Training,
        objective: EpistemicObjective,
        *,
        data: Any = None,
        copies: int = 1,
        detail: Any = None,
    ) -> Planned:
        """Return a training as a plan lists it.

        Args:
            name: what is trained.
            enn: the ENN before training.
            training: how it is trained.
            objective: what is minimized.
            data: examples, by default those for training.
            copies: how many such networks there are.
            detail: what tells it from others of this name.
        """
        settings = settings_of(training, self.num_train)
        optimizer = settings["optimizer"]
        batch = jax.tree.map(lambda leaf: leaf[: training.batch_size], self.data.train if data is None else data)
        arrays, rest = eqx.partition(init_state(enn, optimizer, key=self.seed.key_of(f"planned {name}")), eqx.is_array)

        def step(arrays: Any, batch: Batch) -> Any:
            new, metrics = train_step(eqx.combine(arrays, rest), batch, objective, optimizer)
            return eqx.filter(new, eqx.is_array), metrics["loss"]

        return Planned(
            name=name,
            step=step,
            arguments=(arrays, batch),
            steps=settings["num_steps"],
            copies=copies,
            disk=num_bytes(enn),
            detail=detail,
        )

    @ft.cached_property
    def particles(self) -> Ensemble:
        """The largest ensemble of the smallest network; the smaller ensembles are its first particles."""
        protocol, training = self.seed.protocol, self.seed.protocol.training
        count, size = max(protocol.ensemble_sizes), protocol.sizes[0]
        # Its values are used by no one.
        keys = jax.random.split(self.seed.key_of("like"), count)
        like = Ensemble(eqx.filter_vmap(lambda key: self.make_network(size, key))(keys))

        def train() -> Ensemble:
            return fit_ensemble(
                lambda key: self.make_network(size, key),
                self.data.train,
                loss_of(training),
                num_particles=count,
                **settings_of(training, self.num_train),
                key=self.seed.key_of("particles"),
            ).model

        def plan() -> tuple[Planned, Ensemble]:
            one = Deterministic(self.make_network(size, self.seed.key_of("planned")))
            objective = EpistemicObjective(loss_of(training), num_index_samples=1)
            return self._planned(f"particle {size}", one, training, objective, copies=count), like

        place = self.seed.place("particles", training, size, count)
        return self.trainer(lambda: kept(place, like, train), plan)

    def base(self, size: int) -> AbstractNetwork:
        """Return a trained network of a size; the smallest is the first particle."""
        if size == self.seed.protocol.sizes[0]:
            return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, self.particles.particles)
        init_key, fit_key = named_keys(self.seed.key_of(f"base {size}"), "init", "fit")
        training = self.seed.protocol.training

        def build() -> AbstractENN:
            return Deterministic(self.make_network(size, init_key))

        return self.fit(Untrained(name=f"base {size}", build=build, training=training, key=fit_key)).network

    def alone(self, size: int, network: AbstractNetwork) -> Agent:
        """Return the base network of a size as an agent."""
        enn = Deterministic(network)
        return Agent(name="resnet", size=size, enn=enn, batches=self.batches, counted=enn)

    def ensemble(self, size: int) -> Agent:
        """Return the ensemble of the first particles."""
        particles = jax.tree.map(lambda leaf: leaf[:size] if eqx.is_array(leaf) else leaf, self.particles.particles)
        enn = Ensemble(particles)
        return Agent(name="ensemble", size=size, enn=enn, batches=self.batches, counted=enn)

    def dropout(self) -> AbstractENN:
        """Return a trained network with dropout; one mask per index."""
        init_key, fit_key = named_keys(self.seed.key_of("dropout"), "init", "fit")
        recipe, size = self.seed.protocol.baselines, self.seed.protocol.sizes[0]

        def build() -> AbstractENN:
            return dropout_mlp(self.num_pixels, self.num_classes, (size, size), rate=recipe.dropout_rate, key=init_key)

        training = self.seed.protocol.training
        return self.fit(Untrained(name="dropout", build=build, training=training, recipe=recipe, key=fit_key))

    def mimo(self) -> AbstractENN:
        """Return a network of two inputs and two outputs, trained on pairs that are drawn anew in every epoch."""
        init_key, pair_key, fit_key = named_keys(self.seed.key_of("mimo"), "init", "pairs", "fit")
        size, training = self.seed.protocol.sizes[0], self.seed.protocol.training
        network = MLP(2 * self.num_pixels, 2 * self.num_classes, (size, size), feature_layers=(), key=init_key)
        loss = MIMOLoss(loss_of(training))
        pairs = jax.jit(lambda epoch: mimo_batch(self.data.train, key=jax.random.fold_in(pair_key, epoch)))

        def train() -> Any:
            settings = settings_of(training, self.num_train)
            settings["num_steps"] //= training.epochs
            state: Any = Deterministic(network)
            for epoch in range(training.epochs):
                key = jax.random.fold_in(fit_key, epoch)
                state = fit(state, pairs(epoch), loss, **settings, key=key).state
            return state.model.network

        def plan() -> tuple[Planned, Any]:
            objective = EpistemicObjective(loss, num_index_samples=1)
            return self._planned("mimo", Deterministic(network), training, objective, data=pairs(0)), network

        return MIMO(self.trainer(lambda: kept(self.seed.place("mimo", training, size), network, train), plan))

    def on_trunk(
        self, name: str, make_head: Callable[[int, PRNGKeyArray], AbstractENN], *, bounded: bool = False
    ) -> OnTrunk:
        """Return an ENN on the features of a network, both trained together."""
        trunk_key, head_key, fit_key = named_keys(self.seed.key_of(name), "trunk", "head", "fit")
        protocol = self.seed.protocol

        def build() -> AbstractENN:
            trunk = headless(self.make_network(protocol.sizes[0], trunk_key))
            head = make_head(trunk.feature_dim, head_key)
            return OnTrunk(SpectrallyBounded(trunk) if bounded else trunk, head)

        recipe = protocol.baselines
        return self.fit(Untrained(name=name, build=build, training=protocol.training, recipe=recipe, key=fit_key))

    def posterior(self, enn: OnTrunk) -> AbstractENN:
        """Return an `SNGP` on a trunk with the posterior of its output weights given the training data."""
        return with_posterior(enn, self.data.train.x)

    def pictures(self, kind: str) -> AugmentedDyads:
        """Return dyadic batches to look at."""
        transforms = self.data.perturb if kind == "augmented" else ()
        if self.data.normalization is not None:
            transforms = (*transforms, _Undone(self.data.normalization))
        return AugmentedDyads(self.data.test, transforms=transforms, key=self.seed.key_of("grids"))
