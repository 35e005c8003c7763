"""Particle-steps per second of an ensemble trained in one vmapped loop, against its particles one after another.

The particles are MLPs with two hidden layers of 50 units on ten inputs, the batch has 100 examples: a size at which one
particle alone keeps a CPU core busy, so what is measured depends on the number of cores.
"""

import functools as ft

import equinox as eqx
import jax.random as jr
import optax

from epinet_eqx import named_keys
from epinet_eqx.bayes import Deterministic
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import MLP
from epinet_eqx.training import EpistemicObjective, UniformBatches, fit, fit_ensemble, init_state, train_steps

from ._measure import Ratio, minimum_times

PARTICLES, INPUT_DIM, EXAMPLES, BATCH, STEPS = 100, 10, 1000, 100, 100
# Particles that stand for all of them where they are trained one after another.
SAMPLE = 5


def make_particle(key):
    """Return one particle."""
    return MLP(INPUT_DIM, 2, (50, 50), key=key)


def main() -> list[Ratio]:
    """Return how many times faster the particles are trained together: the loop alone, and with all of `fit`."""
    data_key, label_key, model_key, train_key = named_keys(jr.key(0), "data", "labels", "model", "train")
    data = Batch.of(jr.normal(data_key, (EXAMPLES, INPUT_DIM)), jr.randint(label_key, (EXAMPLES,), 0, 2))
    loss, optimizer = CrossEntropy(l2=1e-3), optax.adam(1e-3)

    def state(key):
        return init_state(Deterministic(make_particle(key)), optimizer, key=key)

    run = ft.partial(
        train_steps,
        objective=EpistemicObjective(loss, num_index_samples=1),
        optimizer=optimizer,
        batches=UniformBatches(BATCH),
        num_steps=STEPS,
    )
    keys = jr.split(model_key, PARTICLES)
    states, single = eqx.filter_vmap(state)(keys), state(model_key)
    alone = eqx.filter_jit(run)
    together = eqx.filter_jit(lambda states, data: eqx.filter_vmap(lambda state: run(state, data))(states))
    options = {"num_steps": STEPS, "optimizer": optimizer, "block_size": STEPS, "progress": False}
    make = eqx.filter_jit(make_particle)

    def fits():
        return [fit(Deterministic(make(key)), data, loss, key=train_key, **options).enn for key in keys[:SAMPLE]]

    def fit_together():
        return fit_ensemble(
            make_particle, data, loss, num_particles=PARTICLES, key=train_key, **options
        ).model.particles

    functions = [
        lambda: [alone(single, data)[1] for _ in range(SAMPLE)],
        lambda: together(states, data)[1],
        lambda: eqx.filter(fits(), eqx.is_array),
        lambda: eqx.filter(fit_together(), eqx.is_array),
    ]
    loop_alone, loop_together, fit_alone, fit_all = minimum_times(functions, rounds=3)
    return [
        Ratio(
            "ensemble: particle-steps/s of the loop, over one by one",
            loop_alone / SAMPLE * PARTICLES / loop_together,
            5.0,
        ),
        Ratio(
            "ensemble: particle-steps/s of `fit_ensemble`, over `fit` one by one",
            fit_alone / SAMPLE * PARTICLES / fit_all,
            5.0,
        ),
    ]
