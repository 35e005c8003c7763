"""The exact contraction against running the epinet once per index, at the size of ImageNet's epinet."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import epinet_eqx as epi

from ._measure import Ratio, flops, minimum_times

BATCH, FEATURES, CLASSES, INDEX_DIM = 64, 2048, 1000, 30
# One run per index needs 15 MB for each: it goes chunk by chunk, and so does the contraction. After some chunks,
# more of them change nothing about the ratio.
SAMPLES, CHUNK = 100, 20


def main() -> list[Ratio]:
    """Return operations and time saved, and the largest relative difference of the outputs."""
    keys = jr.split(jr.key(0), 3)
    enn = epi.attach(
        lambda x: (x[:CLASSES], x), out_size=CLASSES, index_dim=INDEX_DIM, example=jnp.zeros(FEATURES), key=keys[0]
    )
    enn = eqx.tree_at(lambda enn: enn.priors, enn, ())
    embeddings = jax.vmap(enn.embed)(jr.normal(keys[1], (BATCH, FEATURES)))
    zs = enn.index.sample_many(SAMPLES, key=keys[2])

    def literal(embedding, z):
        first, last = enn.learnable.layers
        units = jax.nn.relu(embedding.learnable + first.weight[:, FEATURES:] @ z)
        return embedding.base + z @ last(units).reshape(INDEX_DIM, CLASSES)

    def mapped(embeddings, zs):
        return jax.vmap(lambda embedding: jax.vmap(lambda z: literal(embedding, z))(zs))(embeddings)

    def contracted(embeddings, zs):
        return jax.vmap(lambda embedding: enn.heads(embedding, zs))(embeddings)

    def in_chunks(function):
        # The mean over indices stands for what an evaluation keeps; no logits are stored.
        chunks = zs.reshape(-1, CHUNK, INDEX_DIM)
        return jax.jit(
            lambda embeddings: jax.lax.scan(
                lambda total, zs: (total + jnp.sum(function(embeddings, zs), axis=1), None),
                jnp.zeros((BATCH, CLASSES)),
                chunks,
            )[0]
        )

    counts = [flops(jax.jit(function).lower(embeddings, zs).compile()) for function in (mapped, contracted)]
    slow, fast = in_chunks(mapped), in_chunks(contracted)
    times = minimum_times([lambda: slow(embeddings), lambda: fast(embeddings)], rounds=5)
    few = zs[:CHUNK]
    exact, ours = jax.jit(mapped)(embeddings, few), jax.jit(contracted)(embeddings, few)
    difference = jnp.max(jnp.abs(exact - ours)) / jnp.max(jnp.abs(exact))
    return [
        Ratio("heads: operations of one run per index over ours", counts[0] / counts[1], 10.0),
        Ratio("heads: time of one run per index over ours", times[0] / times[1], 5.0),
        Ratio("heads: largest difference, relative", float(difference), 1e-5, at_most=True),
    ]
