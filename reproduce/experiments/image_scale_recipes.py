"""Networks, losses and optimizers at scale, by their names and numbers in a protocol."""

from collections.abc import Callable
from typing import Any

import optax

from epinet_eqx.networks import cifar_resnet, resnet_v1, resnet_v2

from ..configs.images import Training

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
