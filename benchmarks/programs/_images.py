"""A small ResNet on images: features, and a step with running statistics."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import FixedStatistics, cifar_resnet, with_statistics
from epinet_eqx.training import StatefulObjective, TrainState, init_state, make_train_step

from ._program import Program

BATCH, DEPTH, CLASSES = 8, 8, 10
OPTIMIZER = optax.sgd(0.1, momentum=0.9, nesterov=True)


def _images(value: float) -> Batch:
    """Return images of this standard deviation."""
    x = value * jr.normal(jr.key(1), (BATCH, 3, 32, 32))
    return Batch.of(x, jnp.arange(BATCH, dtype=jnp.int32) % CLASSES)


def _forward(network: FixedStatistics, x: jax.Array) -> Any:
    return jax.vmap(network.with_features)(x)


def forward(value: float) -> Program:
    """Logits and features by the running statistics."""
    network = with_statistics(*cifar_resnet(DEPTH, CLASSES, key=jr.key(0)))
    return Program(_forward, (network, _images(value).x), network)


def step(value: float) -> Program:
    """One step of training at scale, statistics included."""
    network, statistics = cifar_resnet(DEPTH, CLASSES, key=jr.key(0))
    state = init_state(network, OPTIMIZER, model_state=statistics, key=jr.key(2))

    def run(state: TrainState, batch: Batch, loss: CrossEntropy) -> Any:
        return make_train_step(StatefulObjective(loss), OPTIMIZER)(state, batch)

    return Program(run, (state, _images(value), CrossEntropy(l2=1e-4 * value)), network)
