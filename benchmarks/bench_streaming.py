"""Streamed losses: memory that does not grow with the number of indices M, and time close to the machine's limit."""

import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi

from ._measure import Ratio, minimum_times, temporary_bytes

BATCH, FEATURES, CLASSES, INDEX_DIM, HIDDEN = 64, 2048, 1000, 30, 50
SAMPLES = 1000


def limits() -> tuple[list[Callable[[], jax.Array]], Callable[[list[float]], float]]:
    """Return programs that measure the machine's rates, and what their times make of the streamed losses' own work.

    The work is the products of two terms, the learnable one and its matched prior (weights contracted with each index,
    then multiplied by the hidden units of each input), and one exponential per output.
    """
    size, numbers = 1024, jnp.linspace(-8.0, 0.0, 2**20)
    square = jnp.ones((size, size))
    product, exponentials = jax.jit(lambda a: a @ a), jax.jit(jnp.exp)
    operations = 2 * 2 * SAMPLES * HIDDEN * CLASSES * (INDEX_DIM + BATCH)

    def limit(times: list[float]) -> float:
        per_operation, per_exponential = times[0] / (2 * size**3), times[1] / numbers.size
        return operations * per_operation + SAMPLES * BATCH * CLASSES * per_exponential

    return [lambda: product(square), lambda: exponentials(numbers)], limit


def main() -> list[Ratio]:
    """Return memory at M = 100,000 over M = 1000, and the time at M = 1000 over the limit measured in the same run."""
    keys = jr.split(jr.key(0), 3)
    enn = epi.attach(
        lambda x: (x[:CLASSES], x), out_size=CLASSES, index_dim=INDEX_DIM, example=jnp.zeros(FEATURES), key=keys[0]
    )
    arrays, static = eqx.partition(enn, eqx.is_array)
    x, y = jr.normal(keys[1], (BATCH, FEATURES)), jnp.arange(BATCH)

    def compiled(num_samples):
        def losses(arrays, x, y, key):
            enn = eqx.combine(arrays, static)
            found = epi.metrics.log_losses(enn, x, y, epi.Draws.sample(enn.index, num_samples, key=key))
            return jax.tree.leaves(found)

        return jax.jit(losses).lower(arrays, x, y, keys[2]).compile()

    few, many = compiled(SAMPLES), compiled(100 * SAMPLES)
    rates, limit = limits()
    # CPU time of all cores: on a busy machine, wall time measures other processes.
    streamed, *times = minimum_times([lambda: few(arrays, x, y, keys[2]), *rates], rounds=7, clock=time.process_time)
    memory = temporary_bytes(many) / temporary_bytes(few)
    return [
        Ratio("streaming: memory at M = 100,000 over M = 1000", memory, 1.1, at_most=True),
        # The goal is 1.5; the bound keeps what has been reached.
        Ratio("streaming: time over that of its products and exponentials", streamed / limit(times), 3.0, at_most=True),
    ]
