"""Steps per second of the compiled loop against a Python loop over a compiled step, on a testbed-size epinet."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from epinet_eqx import named_keys
from epinet_eqx.epinet import Epinet, MLPEpinet, mlp_prior
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.training import EpistemicObjective, TrainState, UniformBatches, init_state, train_step, train_steps

from ._measure import Ratio, minimum_times

INPUT_DIM = 10
INDEX_DIM = 8
NUM_CLASSES = 2
BATCH_SIZE = 100
NUM_EXAMPLES = 1000
NUM_STEPS = 500
NUM_ROUNDS = 5


def make_epinet(key: jax.Array) -> Epinet:
    """Return the epinet of Appendix F.3."""
    base_key, learnable_key, prior_key = named_keys(key, "base", "learnable", "prior")
    base = MLP(INPUT_DIM, NUM_CLASSES, (50, 50), feature_layers=(0, -1), key=base_key)
    learnable = MLPEpinet(base.feature_dim, INDEX_DIM, NUM_CLASSES, hidden=(15, 15), key=learnable_key)
    prior = mlp_prior(INPUT_DIM, INDEX_DIM, NUM_CLASSES, key=prior_key)
    return Epinet(base, learnable, (prior,), GaussianIndex(INDEX_DIM))


def main() -> list[Ratio]:
    """Return how many times more steps per second the compiled loop makes."""
    model_key, data_key, train_key, batch_key = named_keys(jr.key(0), "model", "data", "train", "batch")
    x = jr.normal(data_key, (NUM_EXAMPLES, INPUT_DIM))
    data = Batch.of(x, (x[:, 0] > 0).astype(jnp.int32))
    optimizer = optax.adam(1e-3)
    objective = EpistemicObjective(CrossEntropy(l2=1e-4), num_index_samples=INDEX_DIM)
    state = init_state(make_epinet(model_key), optimizer, key=train_key)

    options = {"objective": objective, "optimizer": optimizer}
    steps = eqx.filter_jit(ft.partial(train_steps, **options, batches=UniformBatches(BATCH_SIZE), num_steps=NUM_STEPS))

    # The best case of a Python loop: one call per step, with the drawing of the batch compiled into it.
    @eqx.filter_jit
    def step(state: TrainState, data: Batch) -> tuple[TrainState, jax.Array]:
        ids = jr.randint(jr.fold_in(batch_key, state.step), (BATCH_SIZE,), 0, NUM_EXAMPLES)
        new, metrics = train_step(state, jax.tree.map(lambda leaf: leaf[ids], data), **options)
        return new, metrics["loss"]

    def python_loop() -> TrainState:
        current = state
        for _ in range(NUM_STEPS):
            current, _ = step(current, data)
        return eqx.filter(current, eqx.is_array)

    def compiled_loop() -> TrainState:
        return eqx.filter(steps(state, data)[0], eqx.is_array)

    python, compiled = minimum_times([python_loop, compiled_loop], rounds=NUM_ROUNDS)
    return [Ratio("training: steps/s of the compiled loop, over a Python loop", python / compiled, 2.5)]
