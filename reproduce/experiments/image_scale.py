"""Image protocols at scale: ResNets on a mesh of all devices, with checkpoints; outputs of particles in banks."""

import functools as ft
import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, load, named_keys, save
from epinet_eqx.baselines import MIMO, SpectrallyBoundedStateful
from epinet_eqx.bayes import Deterministic, MCDropout
from epinet_eqx.combinators import OnTrunk
from epinet_eqx.data import AugmentedDyads, FeatureBank
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import AbstractNetwork, headless, with_statistics
from epinet_eqx.training import (
    AbstractObjective,
    StatefulObjective,
    TrunkObjective,
)

from .image_agents import Agent, Seed, Trainer, Untrained, loss_of, run_training
from .image_scale_baselines import MIMOObjective, gram_of, kernels_of_blocks
from .image_scale_data import CHUNK, ScaleData, stored_batches
from .image_scale_training import FAMILIES, MeshTraining
from .scoring import TAU, StoredParticles


class ScaleBackend:
    """Data in a folder, ResNets on a mesh. What is trained is kept, and found again."""

    def __init__(self, seed: Seed, trainer: Trainer = run_training):
        """Initialize with a seed, and what is done with trainings; nothing is read yet."""
        self.seed = seed
        self.trainer = trainer
        self.data = ScaleData(seed)
        self.train = MeshTraining(self.data, trainer)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.data.facts.num_classes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return self.data.facts.image_shape

    @property
    def example(self) -> Array:
        """One input of zeros, for its shape."""
        return jnp.zeros(self.image_shape)

    def batches(self, split: str) -> Iterator[Batch]:
        """Yield the images of a split."""
        return self.data.batches(split)

    def make(self, size: int, *args: Any, family: str = "", key: PRNGKeyArray, **options: Any) -> Any:
        """Return a network of a size, and its state."""
        make = FAMILIES[family or self.seed.protocol.networks]
        return make(size, *args, in_channels=options.pop("in_channels", self.image_shape[0]), **options, key=key)

    def _one(self, name: str, size: int, *, copies: int = 1, key: PRNGKeyArray) -> AbstractNetwork:
        """Return one trained network, with its running statistics fixed."""
        training = self.seed.protocol.training
        counts = (*self.data.sizes[1:], TAU * self.seed.protocol.num_augmented)
        network, state = self.train(
            name,
            lambda key: self.make(size, self.num_classes, key=key),
            StatefulObjective(loss_of(training)),
            training,
            place=[size],
            copies=copies,
            outputs=4 * self.num_classes * sum(counts),
            key=key,
        )
        return with_statistics(network, state)

    def _particle(self, number: int) -> AbstractNetwork:
        """Return a particle; each has its own initialization and its own order of the data."""
        key = jax.random.fold_in(self.seed.key_of("particles"), number)
        protocol = self.seed.protocol
        # A plan asks for the first only, which stands for all.
        return self._one(f"particle {number}", protocol.sizes[0], copies=max(protocol.ensemble_sizes), key=key)

    def base(self, size: int) -> AbstractNetwork:
        """Return a trained network of a size; the smallest is the first particle."""
        if size == self.seed.protocol.sizes[0]:
            return self._particle(0)
        return self._one(f"base {size}", size, key=self.seed.key_of(f"base {size}"))

    def _bank(self, name: str, size: int, network: Callable[[], AbstractNetwork]) -> FeatureBank:
        """Return the outputs of a network on everything that it is scored on, computed once."""
        folder = self.train.place(f"{name} outputs", self.seed.protocol.training, size, *_evaluated(self.seed))
        if not (folder / "done").is_file():
            trained = network()

            def embed(x: Array) -> tuple[Array, Array]:
                # Features are not needed again, and would be twice as many as outputs.
                return trained(x), jnp.zeros(0)

            FeatureBank.build(
                embed,
                self.data.splits,
                folder,
                batch_size=CHUNK,
                batches_per_shard=1,
                num_threads=self.data.num_threads,
            )
            (folder / "done").touch()
        return FeatureBank.open(folder)

    def _agent(self, name: str, size: int, networks: dict[str, Callable[[], AbstractNetwork]], depth: int) -> Agent:
        """Return an agent whose outputs are stored."""
        counted = Deterministic(next(iter(networks.values()))())

        def batches(split: str) -> Iterator[Batch]:
            return stored_batches([self._bank(key, depth, network) for key, network in networks.items()], split)

        count = len(networks)
        return Agent(name=name, size=size, enn=StoredParticles(count), batches=batches, counted=counted, copies=count)

    def alone(self, size: int, network: AbstractNetwork) -> Agent:
        """Return the base network of a size as an agent."""
        name = "particle 0" if size == self.seed.protocol.sizes[0] else f"base {size}"
        return self._agent("resnet", size, {name: lambda: network}, size)

    def ensemble(self, size: int) -> Agent:
        """Return the ensemble of the first particles."""
        networks = {f"particle {number}": ft.partial(self._particle, number) for number in range(size)}
        return self._agent("ensemble", size, networks, self.seed.protocol.sizes[0])

    def fit(self, wanted: Untrained) -> Any:
        """Return an ENN without running statistics, such as one on a frozen network, trained on the mesh."""
        enn, _ = self.train(
            wanted.name,
            lambda key: (wanted.build(), None),
            wanted.objective,
            wanted.training,
            place=[self.seed.protocol.training, *wanted.settings],
            detail=wanted.recipe,
            key=wanted.key,
        )
        return enn

    def _baseline_network(self, num_classes: int, *, key: PRNGKeyArray, **options: Any) -> Any:
        """Return a network of the baselines' family, of the smallest size, and its state."""
        protocol = self.seed.protocol
        return self.make(protocol.sizes[0], num_classes, family=protocol.baselines.networks, **options, key=key)

    def _train_baseline(
        self,
        name: str,
        make: Callable[[PRNGKeyArray], tuple[Any, Any]],
        objective: Callable[[CrossEntropy], AbstractObjective],
    ) -> tuple[Any, Any]:
        """Return a trained baseline and its state."""
        protocol, recipe = self.seed.protocol, self.seed.protocol.baselines
        training = recipe.training or protocol.training
        place = [protocol.sizes[0], recipe]
        key = self.seed.key_of(name)
        return self.train(name, make, objective(loss_of(training)), training, place=place, key=key)

    def dropout(self) -> AbstractENN:
        """Return a trained network with dropout of channels; one mask per index."""
        rate = self.seed.protocol.baselines.dropout_rate

        def make(key: PRNGKeyArray) -> tuple[Any, Any]:
            return self._baseline_network(self.num_classes, dropout=rate, key=key)

        return MCDropout(with_statistics(*self._train_baseline("dropout", make, StatefulObjective)).masked)

    def mimo(self) -> AbstractENN:
        """Return a trained network of two images and two outputs."""
        repeats = self.seed.protocol.baselines.mimo_repeats

        def make(key: PRNGKeyArray) -> tuple[Any, Any]:
            return self._baseline_network(2 * self.num_classes, in_channels=2 * self.image_shape[0], key=key)

        def objective(loss: CrossEntropy) -> AbstractObjective:
            return MIMOObjective(loss, repeats, self.train.mesh)

        return MIMO(with_statistics(*self._train_baseline("mimo", make, objective)))

    def on_trunk(
        self, name: str, make_head: Callable[[int, PRNGKeyArray], AbstractENN], *, bounded: bool = False
    ) -> OnTrunk:
        """Return an ENN on the features of a network, whose statistics are fixed; both are trained together."""

        def make(key: PRNGKeyArray) -> tuple[Any, Any]:
            trunk_key, head_key = named_keys(key, "trunk", "head")
            trunk, state = self._baseline_network(self.num_classes, key=trunk_key)
            trunk = headless(trunk)
            if bounded:
                trunk = SpectrallyBoundedStateful(trunk, where=kernels_of_blocks)
            return (trunk, make_head(trunk.feature_dim, head_key)), state

        def objective(loss: CrossEntropy) -> AbstractObjective:
            return TrunkObjective(loss, num_index_samples=1)

        (trunk, enn), state = self._train_baseline(name, make, objective)
        return OnTrunk(with_statistics(trunk, state), enn)

    def posterior(self, enn: OnTrunk) -> AbstractENN:
        """Return an `SNGP` on a trunk with the posterior of its output weights given the training data, one pass."""

        def compute() -> AbstractENN:
            inner: Any = enn.enn
            file = self.train.place("gram", self.seed.protocol).with_suffix(".safetensors")
            if file.is_file():
                gram = load(file, {"gram": jnp.zeros((inner.weight.shape[0],) * 2)})["gram"]
            else:
                with self.data.decoded() as loader:
                    gram = ft.reduce(operator.add, (gram_of(enn, batch.x) for batch in loader))
                file.parent.mkdir(parents=True, exist_ok=True)
                save(file, {"gram": gram})
            return enn.with_enn(inner.with_gram(gram))

        return self.trainer(compute, lambda: (None, enn))

    def pictures(self, kind: str) -> AugmentedDyads:
        """Return dyadic batches to look at."""
        images = self.data.images
        transforms = images.perturb if kind == "augmented" else ()
        return AugmentedDyads(
            self.data.shares.test, decode=images.decode, transforms=transforms, key=self.seed.key_of("grids")
        )


def _evaluated(seed: Seed) -> tuple[Any, ...]:
    """Return what outputs on evaluated images depend on."""
    return seed.protocol.num_test, seed.protocol.num_augmented
