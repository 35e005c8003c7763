"""Epochs per second of an epinet that trains from a feature bank, over one that trains through the frozen ResNet-56."""

import functools as ft
import tempfile

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax

from epinet_eqx import attach, named_keys
from epinet_eqx.data import CIFAR10_NORMALIZATION, ArrayDataset, FeatureBank, stored_base
from epinet_eqx.losses import CrossEntropy
from epinet_eqx.networks import cifar_resnet, with_statistics
from epinet_eqx.training import EpistemicObjective, UniformBatches, init_state, train_step, train_steps

from ._measure import Ratio, minimum_times

NUM_EXAMPLES = 100
BATCH_SIZE = 50
INDEX_DIM = 20
NUM_STEPS = 1000
NUM_ROUNDS = 5


def main() -> list[Ratio]:
    """Return how many times faster an epoch is; both see the same batches and sample as many indices."""
    base_key, enn_key, train_key = named_keys(jr.key(0), "base", "epinet", "train")
    base = with_statistics(*cifar_resnet(56, key=base_key))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (NUM_EXAMPLES, 3, 32, 32), dtype=np.uint8)
    data = ArrayDataset(x, rng.integers(0, 10, NUM_EXAMPLES), num_classes=10)
    with tempfile.TemporaryDirectory() as folder:
        bank = FeatureBank.build(
            base.with_features, {"train": data}, folder, normalization=CIFAR10_NORMALIZATION, batch_size=BATCH_SIZE
        )
        stored = bank.as_batch("train")
    attached = ft.partial(attach, out_size=10, index_dim=INDEX_DIM, key=enn_key)
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=True)

    settings = {
        "objective": EpistemicObjective(CrossEntropy(l2=1e-4), num_index_samples=5),
        "optimizer": optimizer,
    }
    images = data.as_batch(CIFAR10_NORMALIZATION)
    state = init_state(attached(base, example=images.x[0]), optimizer, key=train_key)
    stored_state = init_state(attached(stored_base, example=bank.example()), optimizer, key=train_key)
    # One program per step: for a base of this size there is nothing to gain by compiling the loop.
    step = eqx.filter_jit(ft.partial(train_step, **settings))
    batch = jax.tree.map(lambda leaf: leaf[:BATCH_SIZE], images)
    batches = UniformBatches(BATCH_SIZE)
    steps = eqx.filter_jit(ft.partial(train_steps, **settings, batches=batches, num_steps=NUM_STEPS))
    slow, fast = minimum_times(
        [lambda: step(state, batch)[1]["loss"], lambda: steps(stored_state, stored)[1]], rounds=NUM_ROUNDS
    )
    ratio = slow / (fast / NUM_STEPS)
    return [Ratio("bank: epochs/s of training an epinet, over training through ResNet-56", ratio, 20.0)]
