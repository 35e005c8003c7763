"""The Pitman-Yor head: sampled, against the contraction at the size of ImageNet's epinet; exact, in seconds."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi
from epinet_eqx import pitman_yor

from ._measure import Ratio, minimum_times

BATCH, FEATURES, CLASSES, INDEX_DIM = 64, 2048, 1000, 30
# The logits of a chunk are 5 MB.
SAMPLES, CHUNK = 1000, 20
IMAGES, IMAGE_CLASSES = 10_000, 10


def _in_chunks(enn: epi.AbstractENN, embeddings: Any, zs: jax.Array) -> Callable[[], Any]:
    """Return the compiled sum of outputs over indices, which stands for what an evaluation keeps."""
    chunks = zs.reshape(-1, CHUNK, zs.shape[1])

    @jax.jit
    def run(embeddings: Any) -> jax.Array:
        def step(total: jax.Array, zs: jax.Array) -> tuple[jax.Array, None]:
            return total + jnp.sum(jax.vmap(lambda embedding: enn.heads(embedding, zs))(embeddings), axis=1), None

        return jax.lax.scan(step, jnp.zeros((BATCH, CLASSES)), chunks)[0]

    return lambda: run(embeddings)


def _exact_seconds() -> float:
    """Return the CPU time, over all cores, of exact dyadic losses of as many images as CIFAR-10's test set has."""
    logits_key, label_key = jr.split(jr.key(1))
    logits = 3 * jr.normal(logits_key, (IMAGES, IMAGE_CLASSES))
    y = jr.randint(label_key, (IMAGES,), 0, IMAGE_CLASSES)

    def run() -> Any:
        return pitman_yor.logits_log_losses(logits, y, alpha=0.05).joint.values

    return minimum_times([run], rounds=5, clock=time.process_time)[0]


def main() -> list[Ratio]:
    """Return the time of the head over that of the epinet, and the CPU seconds of exact losses."""
    keys = jr.split(jr.key(0), 5)

    def base(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x[:CLASSES], x

    epinet = epi.attach(base, out_size=CLASSES, index_dim=INDEX_DIM, example=jnp.zeros(FEATURES), key=keys[0])
    epinet = eqx.tree_at(lambda enn: enn.priors, epinet, ())
    x = jr.normal(keys[1], (BATCH, FEATURES))
    head = pitman_yor.attach(base, x, alpha=0.2, key=keys[2])
    runs = [
        _in_chunks(enn, jax.vmap(enn.embed)(x), enn.index.sample_many(SAMPLES, key=key))
        for enn, key in ((head, keys[3]), (epinet, keys[4]))
    ]
    times = minimum_times(runs, rounds=3)
    name = f"pitman_yor: time of the sampled head over the epinet's heads, {SAMPLES} indices"
    exact = "pitman_yor: CPU seconds of exact dyadic losses of 10,000 images"
    return [
        Ratio(name, times[0] / times[1], 2.0, at_most=True),
        Ratio(exact, _exact_seconds(), 1.0, at_most=True),
    ]
