"""Streamed losses: memory must not grow with the number of indices M."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi

from ._measure import Ratio, temporary_bytes

BATCH, FEATURES, CLASSES, INDEX_DIM = 64, 2048, 1000, 30


def main() -> list[Ratio]:
    """Return the temporary memory of marginal and joint loss at M = 100,000 over that at M = 1000."""
    keys = jr.split(jr.key(0), 3)
    enn = epi.attach(
        lambda x: (x[:CLASSES], x), num_classes=CLASSES, index_dim=INDEX_DIM, example=jnp.zeros(FEATURES), key=keys[0]
    )
    arrays, static = eqx.partition(enn, eqx.is_array)
    x, y = jr.normal(keys[1], (BATCH, FEATURES)), jnp.arange(BATCH)

    def memory(num_samples):
        def losses(arrays, x, y, key):
            enn = eqx.combine(arrays, static)
            found = epi.metrics.log_losses(enn, x, y, epi.Draws.sample(enn.index, num_samples, key=key))
            return found.marginal.mean, found.joint.mean

        return temporary_bytes(jax.jit(losses).lower(arrays, x, y, keys[2]).compile())

    return [Ratio("streaming: memory at M = 100,000 over M = 1000", memory(100_000) / memory(1000), 1.1, at_most=True)]
