"""Image protocols at scale: ResNets on a mesh of all devices, with checkpoints; outputs of particles in banks."""

import functools as ft
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import AbstractENN, load, named_keys, save
from epinet_eqx.bayes import Deterministic
from epinet_eqx.data import AugmentedDyads, FeatureBank, Loader, Source
from epinet_eqx.losses import Batch
from epinet_eqx.networks import AbstractNetwork, with_statistics
from epinet_eqx.training import (
    AbstractObjective,
    Checkpoints,
    EpistemicObjective,
    JsonlMetrics,
    StatefulObjective,
    data_mesh,
    init_state,
    make_train_step,
    train,
)

from ..configs.images import EpinetRecipe, Training
from ..errors import ReproduceError
from .image_agents import Agent, Seed
from .image_plan import Planner, is_shape
from .image_scale_outputs import CHUNK, DrawnSource, stored_batches
from .image_scale_recipes import FAMILIES, loss_of, optimizer_of
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

    def __init__(self, seed: Seed, planner: Planner | None = None):
        """Initialize with a seed; with a planner, nothing is read or trained, and it is told of all that would be."""
        if seed.inputs.networks is None and planner is None:
            raise ValueError("`inputs` must say where networks are kept; got None.")
        self.seed = seed
        self.planner = planner
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
        """Numbers and shapes of the data set."""
        if self.planner is None:
            return self.images.facts
        return known_facts(self.seed.protocol, self.seed.inputs, key=self._data_key)

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
            copies: how many such networks there are, for the planner.
            outputs: bytes that are computed with it, for the planner.
            detail: what tells it from others of this name, for the planner.
            key: random key.
        """
        init_key, data_key, step_key = named_keys(key, "init", "data", "steps")
        num_train = sizes_of(self.seed.protocol, self.facts)[0]
        optimizer, steps = optimizer_of(training, num_train)

        def begin() -> Any:
            model, model_state = make(init_key)
            return init_state(model, optimizer, model_state=model_state, key=step_key)

        if self.planner is not None:
            state = eqx.filter_eval_shape(begin)
            self._plan(name, state, objective, optimizer, training, steps, copies, outputs, detail)
            return state.model, state.model_state
        folder = self.seed.place(name, training, *place)
        assert folder is not None
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

    def _plan(
        self,
        name: str,
        state: Any,
        objective: AbstractObjective,
        optimizer: optax.GradientTransformation,
        training: Training,
        steps: int,
        copies: int,
        outputs: int,
        detail: Any,
    ) -> None:
        """Tell the planner of a training, by shapes only."""
        assert self.planner is not None
        copied, spread = (NamedSharding(self.mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))
        arrays, rest = eqx.partition(state, is_shape)
        arrays = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=copied), arrays)
        size = training.batch_size
        shapes = {"x": ((size, *self.image_shape), jnp.float32), "y": ((size,), jnp.int32), "i": ((size,), jnp.int32)}
        batch = {name: jax.ShapeDtypeStruct(*shape, sharding=spread) for name, shape in shapes.items()}
        step = make_train_step(objective, optimizer, mesh=self.mesh, microbatches=self.seed.inputs.accumulate)

        def run(arrays: Any, batch: dict[str, Array]) -> Any:
            new, metrics = step(eqx.combine(arrays, rest), Batch(**batch))
            return eqx.filter(new, eqx.is_array), metrics

        self.planner.add(
            name, run, (arrays, batch), steps=steps, copies=copies, kept=arrays, outputs=outputs, detail=detail
        )

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
        size, copies = self.seed.protocol.sizes[0], 1
        if self.planner is not None:
            number, copies = 0, max(self.seed.protocol.ensemble_sizes)
        return self._one(f"particle {number}", size, copies=copies, key=key)

    def base(self, size: int) -> AbstractNetwork:
        """Return a trained network of a size; the smallest is the first particle."""
        if size == self.seed.protocol.sizes[0]:
            return self._particle(0)
        return self._one(f"base {size}", size, key=self.seed.key_of(f"base {size}"))

    def _bank(self, name: str, size: int, network: Callable[[], AbstractNetwork]) -> FeatureBank:
        """Return the outputs of a network on everything that it is scored on, computed once."""
        folder = self.seed.place(f"{name} outputs", self.seed.protocol.training, size, *_evaluated(self.seed))
        assert folder is not None
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
        if self.planner is not None:
            return Agent(name=name, size=size, enn=counted, batches=self.batches, counted=counted, copies=len(networks))
        banks = [self._bank(key, depth, network) for key, network in networks.items()]
        enn = StoredParticles(len(banks))
        return Agent(
            name=name, size=size, enn=enn, batches=stored_batches(banks), counted=counted, copies=len(networks)
        )

    def alone(self, size: int, network: AbstractNetwork) -> Agent:
        """Return the base network of a size as an agent."""
        name = "particle 0" if size == self.seed.protocol.sizes[0] else f"base {size}"
        return self._agent("resnet", size, {name: lambda: network}, size)

    def ensemble(self, size: int) -> Agent:
        """Return the ensemble of the first particles."""
        networks = {f"particle {number}": ft.partial(self._particle, number) for number in range(size)}
        return self._agent("ensemble", size, networks, self.seed.protocol.sizes[0])

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
        """Return an ENN without running statistics, such as one on a frozen network, trained on the mesh."""
        enn, _ = self.train(
            name,
            lambda key: (build(), None),
            EpistemicObjective(loss_of(training), num_index_samples=num_index_samples),
            training,
            place=[num_index_samples, self.seed.protocol.training, *([recipe] if recipe else [])],
            detail=recipe,
            key=key,
        )
        return enn

    def baseline(self, name: str) -> AbstractENN:
        """Return a trained baseline."""
        from .image_scale_baselines import BASELINES

        return BASELINES[name](self, self.seed.key_of(name))

    def kept_array(self, name: str, shape: tuple[int, ...], compute: Callable[[], Array]) -> Array:
        """Return an array that was computed before, from its file; if there is none, compute and write it.

        Args:
            name: what it is called; it depends on the protocol.
            shape: its shape.
            compute: returns it.
        """
        folder = self.seed.place(name, self.seed.protocol)
        assert folder is not None
        file = folder.with_name(f"{folder.name}.safetensors")
        if file.is_file():
            return load(file, {"array": jnp.zeros(shape)})["array"]
        found = compute()
        file.parent.mkdir(parents=True, exist_ok=True)
        save(file, {"array": found})
        return found

    def pictures(self, kind: str) -> AugmentedDyads:
        """Return dyadic batches to look at."""
        transforms = self.images.perturb if kind == "augmented" else ()
        return AugmentedDyads(
            self.shares.test, decode=self.images.decode, transforms=transforms, key=self.seed.key_of("grids")
        )


def _evaluated(seed: Seed) -> tuple[Any, ...]:
    """Return what outputs on evaluated images depend on."""
    return seed.protocol.num_test, seed.protocol.num_augmented
