"""Training at scale: networks and optimizers by their names in a protocol, on a mesh of devices, with checkpoints."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from epinet_eqx import named_keys
from epinet_eqx.losses import Batch
from epinet_eqx.networks import cifar_resnet, resnet_v1, resnet_v2
from epinet_eqx.training import (
    AbstractObjective,
    Checkpoints,
    JsonlMetrics,
    data_mesh,
    init_state,
    make_train_step,
    train,
)

from ..configs.images import Training
from ..errors import ReproduceError
from .image_agents import Trainer
from .image_plan import Planned, is_shape, num_bytes
from .image_scale_data import ScaleData

# A training leaves so many checkpoints, one after the other; a crash loses no more than the way from the last one.
_NUM_CHECKPOINTS = 30

# The "ResNet-18" of the paper has two blocks per group.
_CIFAR_DEPTHS: dict[int, int] = {18: 14}


def _cifar_resnet(size: int, *args: Any, **options: Any) -> Any:
    """Return a ResNet of small images as the authors' code has it."""
    return cifar_resnet(_CIFAR_DEPTHS.get(size, size), *args, padding="same", **options)


FAMILIES: dict[str, Callable[..., Any]] = {
    "cifar_resnet": _cifar_resnet,
    "resnet_v1": resnet_v1,
    "resnet_v2": resnet_v2,
}
"""From the name of a family of networks to what makes one of a size, and its state."""


def optimizer_of(training: Training, num_train: int) -> tuple[optax.GradientTransformation, int]:
    """Return the optimizer that a training stands for, and its number of steps."""
    steps = max(1, training.epochs * num_train // training.batch_size)
    warmup = min(steps - 1, training.warmup_epochs * num_train // training.batch_size)
    rate: Any = training.learning_rate
    start = rate / (warmup + 1)
    if training.schedule == "cosine":
        rate = optax.warmup_cosine_decay_schedule(start, rate, warmup, steps)
    elif training.schedule == "steps":
        bounds = {steps * part // 9 for part in (3, 6, 8)}
        falls = optax.piecewise_constant_schedule(rate, {bound - warmup: 0.1 for bound in bounds if bound > warmup})
        rate = optax.join_schedules([optax.linear_schedule(start, rate, warmup), falls], [warmup])
    if training.optimizer == "adam":
        return optax.adam(rate), steps
    return optax.sgd(rate, momentum=0.9, nesterov=True), steps


def _on_first_device(tree: Any) -> Any:
    """Return a tree with its arrays on one device, where it is evaluated."""
    device = jax.devices()[0]
    return jax.tree.map(lambda leaf: jax.device_put(leaf, device) if eqx.is_array(leaf) else leaf, tree)


class MeshTraining:
    """Trains on the images of a seed."""

    def __init__(self, data: ScaleData, trainer: Trainer):
        """Initialize with the data, and what is done with trainings."""
        self.data = data
        self.seed = data.seed
        self.trainer = trainer
        self.mesh = data_mesh()
        batch_size, parts = self.seed.protocol.training.batch_size, self.mesh.size * self.seed.inputs.accumulate
        if batch_size % parts != 0:
            raise ReproduceError(
                f"`--devices` times `--accumulate` must divide the batch size, {batch_size}; got {self.mesh.size} "
                f"times {self.seed.inputs.accumulate}."
            )

    def __call__(
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
        optimizer, steps = optimizer_of(training, self.data.sizes[0])

        def begin() -> Any:
            model, model_state = make(init_key)
            return init_state(model, optimizer, model_state=model_state, key=step_key)

        def run() -> tuple[Any, Any]:
            folder = self.place(name, training, *place)
            with self.data.training(training, key=data_key) as loader:
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

    def place(self, name: str, *configs: Any) -> Path:
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
        shapes = {
            "x": ((size, *self.data.facts.image_shape), jnp.float32),
            "y": ((size,), jnp.int32),
            "i": ((size,), jnp.int32),
        }
        batch = {name: jax.ShapeDtypeStruct(*shape, sharding=spread) for name, shape in shapes.items()}
        step = make_train_step(objective, optimizer, mesh=self.mesh, microbatches=self.seed.inputs.accumulate)

        def run(arrays: Any, batch: dict[str, Array]) -> Any:
            new, metrics = step(eqx.combine(arrays, rest), Batch(**batch))
            return eqx.filter(new, eqx.is_array), metrics

        return run, (arrays, batch)
