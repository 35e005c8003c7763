"""Image protocols at scale: ResNets on a mesh of all devices, with checkpoints; outputs of particles in banks."""

import functools as ft
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, load, named_keys, save
from epinet_eqx.baselines import MIMO, SpectrallyBoundedStateful
from epinet_eqx.bayes import Deterministic, MCDropout
from epinet_eqx.combinators import OnTrunk
from epinet_eqx.data import AugmentedDyads, FeatureBank, Loader, Source
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import AbstractNetwork, headless, with_statistics
from epinet_eqx.training import (
    AbstractObjective,
    Checkpoints,
    JsonlMetrics,
    StatefulObjective,
    TrunkObjective,
    data_mesh,
    init_state,
    make_train_step,
    train,
)

from ..configs.images import Training
from ..errors import ReproduceError
from .image_agents import Agent, Seed, Trainer, Untrained, loss_of, run_training
from .image_plan import Planned, is_shape, num_bytes
from .image_scale_baselines import MIMOObjective, gram_of, kernels_of_blocks
from .image_scale_outputs import CHUNK, DrawnSource, stored_batches
from .image_scale_recipes import FAMILIES, optimizer_of
from .image_sources import Facts, Images, Prepared, Shares, known_facts, open_images, share, sizes_of
from .scoring import TAU, StoredParticles

# A training leaves so many checkpoints, one after the other; a crash loses no more than the way from the last one.
_NUM_CHECKPOINTS = 30


def _on_first_device(tree: Any) -> Any:
    """Return a tree with its arrays on one device, where it is evaluated."""
    device = jax.devices()[0]
    return jax.tree.map(lambda leaf: jax.device_put(leaf, device) if eqx.is_array(leaf) else leaf, tree)


class ScaleBackend:
    """Data in a folder, ResNets on a mesh. What is trained is kept, and found again."""

    def __init__(self, seed: Seed, trainer: Trainer = run_training):
        """Initialize with a seed, and what is done with trainings; nothing is read yet."""
        self.seed = seed
        self.trainer = trainer
        self.mesh = data_mesh()
        self._data_key = seed.key_of("data", shared=True)
        batch_size, parts = seed.protocol.training.batch_size, self.mesh.size * seed.inputs.accumulate
        if batch_size % parts != 0:
            raise ReproduceError(
                f"`--devices` times `--accumulate` must divide the batch size, {batch_size}; got {self.mesh.size} "
                f"times {seed.inputs.accumulate}."
            )

    @ft.cached_property
    def images(self) -> Images:
        """The data set."""
        return open_images(self.seed.protocol, self.seed.inputs, key=self._data_key)

    @ft.cached_property
    def shares(self) -> Shares:
        """The examples of this seed."""
        return share(self.images, self.seed.protocol, self.seed.number, key=self._data_key)

    @ft.cached_property
    def facts(self) -> Facts:
        """Numbers and shapes of the data set, which is not read for them where they are public."""
        return known_facts(self.seed.protocol, self.seed.inputs) or self.images.facts

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.facts.num_classes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return self.facts.image_shape

    @property
    def example(self) -> Array:
        """One input of zeros, for its shape."""
        return jnp.zeros(self.image_shape)

    @ft.cached_property
    def _splits(self) -> dict[str, Source]:
        """The sources that agents are scored on, as networks see their images."""
        images, shares = self.images, self.shares
        dyads = AugmentedDyads(
            shares.test,
            tau=TAU,
            decode=images.decode,
            transforms=images.perturb,
            normalization=images.normalization,
            key=self.seed.key_of("augmented"),
        )
        prepared = {
            name: Prepared(getattr(shares, name), images.decode, images.normalization)
            for name in ("validation", "test")
        }
        return {**prepared, "augmented": DrawnSource(dyads, self.seed.protocol.num_augmented)}

    def _threads(self) -> int:
        """Return the number of threads that read images."""
        return min(16, os.cpu_count() or 1)

    def loader(self, source: Source, batch_size: int) -> Loader:
        """Return a loader that goes through a source once, in order."""
        return Loader(
            source,
            batch_size=batch_size,
            shuffle=False,
            num_epochs=1,
            drop_remainder=False,
            num_threads=self._threads(),
            key=None,
        )

    def batches(self, split: str) -> Iterator[Batch]:
        """Yield the images of a split."""
        with self.loader(self._splits[split], CHUNK) as loader:
            yield from loader

    def make(self, size: int, *args: Any, family: str = "", key: PRNGKeyArray, **options: Any) -> Any:
        """Return a network of a size, and its state."""
        make = FAMILIES[family or self.seed.protocol.networks]
        return make(size, *args, in_channels=options.pop("in_channels", self.image_shape[0]), **options, key=key)

    def train(
        self,
        name: str,
        make: Callable[[PRNGKeyArray], tuple[Any, Any]],
        objective: AbstractObjective,
        training: Training,
        *,
        place: Sequence[Any] = (),
        copies: int = 1,
        outputs: int = 0,
        detail: Any = None,
        key: PRNGKeyArray,
    ) -> tuple[Any, Any]:
        """Return a model and its state, trained on the mesh; what was trained before is read.

        Args:
            name: what it is called.
            make: makes a model and its running statistics (or None) from a key.
            objective: what is minimized.
            training: how.
            place: what its place depends on beside the training, see `Seed.place`.
            copies: how many such networks there are, for a plan.
            outputs: bytes that are computed with it, for a plan.
            detail: what tells it from others of this name, for a plan.
            key: random key.
        """
        init_key, data_key, step_key = named_keys(key, "init", "data", "steps")
        optimizer, steps = optimizer_of(training, sizes_of(self.seed.protocol, self.facts)[0])

        def begin() -> Any:
            model, model_state = make(init_key)
            return init_state(model, optimizer, model_state=model_state, key=step_key)

        def run() -> tuple[Any, Any]:
            folder = self._place(name, training, *place)
            loader = Loader(
                self.shares.train,
                batch_size=training.batch_size,
                transforms=self.images.augment or self.images.decode,
                normalization=self.images.normalization,
                num_threads=self._threads(),
                num_workers=self.seed.inputs.loaders,
                key=data_key,
            )
            with loader:
                result = train(
                    begin(),
                    loader,
                    objective,
                    optimizer=optimizer,
                    num_steps=steps,
                    mesh=self.mesh,
                    microbatches=self.seed.inputs.accumulate,
                    checkpoints=Checkpoints(folder, keep_last=1, keep_best=0),
                    checkpoint_every=-(-steps // _NUM_CHECKPOINTS),
                    callbacks=(JsonlMetrics(folder / "metrics.jsonl"),),
                    progress=sys.stderr.isatty(),
                )
            return _on_first_device((result.state.model, result.state.model_state))

        def plan() -> tuple[Planned, tuple[Any, Any]]:
            state = eqx.filter_eval_shape(begin)
            step, arguments = self._planned_step(state, objective, optimizer, training.batch_size)
            disk = num_bytes(arguments[0]) + outputs
            own = {"steps": steps, "copies": copies, "disk": disk, "detail": detail}
            return Planned(name=name, step=step, arguments=arguments, **own), (state.model, state.model_state)

        return self.trainer(run, plan)

    def _place(self, name: str, *configs: Any) -> Path:
        """Return where something is kept."""
        place = self.seed.place(name, *configs)
        if place is None:
            raise ValueError("`inputs` must say where networks are kept; got None.")
        return place

    def _planned_step(
        self, state: Any, objective: AbstractObjective, optimizer: optax.GradientTransformation, size: int
    ) -> tuple[Callable[..., Any], tuple[Any, Any]]:
        """Return a step on a batch of this size as a function of arrays, and their shapes."""
        copied, spread = (NamedSharding(self.mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
        arrays, rest = eqx.partition(state, is_shape)
        arrays = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=copied), arrays)
        shapes = {"x": ((size, *self.image_shape), jnp.float32), "y": ((size,), jnp.int32), "i": ((size,), jnp.int32)}
        batch = {name: jax.ShapeDtypeStruct(*shape, sharding=spread) for name, shape in shapes.items()}
        step = make_train_step(objective, optimizer, mesh=self.mesh, microbatches=self.seed.inputs.accumulate)

        def run(arrays: Any, batch: dict[str, Array]) -> Any:
            new, metrics = step(eqx.combine(arrays, rest), Batch(**batch))
            return eqx.filter(new, eqx.is_array), metrics

        return run, (arrays, batch)

    def _one(self, name: str, size: int, *, copies: int = 1, key: PRNGKeyArray) -> AbstractNetwork:
        """Return one trained network, with its running statistics fixed."""
        training = self.seed.protocol.training
        counts = (*sizes_of(self.seed.protocol, self.facts)[1:], TAU * self.seed.protocol.num_augmented)
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
        folder = self._place(f"{name} outputs", self.seed.protocol.training, size, *_evaluated(self.seed))
        if not (folder / "done").is_file():
            trained = network()

            def embed(x: Array) -> tuple[Array, Array]:
                # Features are not needed again, and would be twice as many as outputs.
                return trained(x), jnp.zeros(0)

            FeatureBank.build(
                embed, self._splits, folder, batch_size=CHUNK, batches_per_shard=1, num_threads=self._threads()
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
            return MIMOObjective(loss, repeats, self.mesh)

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
            file = self._place("gram", self.seed.protocol).with_suffix(".safetensors")
            if file.is_file():
                gram = load(file, {"gram": jnp.zeros((inner.weight.shape[0],) * 2)})["gram"]
            else:
                source = Prepared(self.shares.train, self.images.decode, self.images.normalization)
                with self.loader(source, CHUNK) as loader:
                    gram = ft.reduce(operator.add, (gram_of(enn, batch.x) for batch in loader))
                file.parent.mkdir(parents=True, exist_ok=True)
                save(file, {"gram": gram})
            return enn.with_enn(inner.with_gram(gram))

        return self.trainer(compute, lambda: (None, enn))

    def pictures(self, kind: str) -> AugmentedDyads:
        """Return dyadic batches to look at."""
        transforms = self.images.perturb if kind == "augmented" else ()
        return AugmentedDyads(
            self.shares.test, decode=self.images.decode, transforms=transforms, key=self.seed.key_of("grids")
        )


def _evaluated(seed: Seed) -> tuple[Any, ...]:
    """Return what outputs on evaluated images depend on."""
    return seed.protocol.num_test, seed.protocol.num_augmented
