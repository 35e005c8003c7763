"""An epinet on a network with ten classes: its stages, its losses, its predictions."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from epinet_eqx import AbstractENN, Draws, attach
from epinet_eqx.metrics import dyadic_log_loss, log_losses, sampled_dyadic_log_loss
from epinet_eqx.networks import MLP
from epinet_eqx.predict import joint_log_probs, uncertainty

from ._program import Program

BATCH, INPUTS, CLASSES, INDEX_DIM, SAMPLES, CHUNK = 64, 64, 10, 8, 1000, 100
TRIPS = SAMPLES // CHUNK


def make_epinet(value: float) -> AbstractENN:
    """Return the epinet, with this prior scale."""
    base = MLP(INPUTS, CLASSES, (64, 64), feature_layers=(-1,), key=jr.key(0))
    return attach(base, out_size=CLASSES, index_dim=INDEX_DIM, prior_scale=value, key=jr.key(1))


def _inputs(value: float) -> jax.Array:
    """Return a batch of inputs of this standard deviation."""
    return value * jr.normal(jr.key(2), (BATCH, INPUTS))


def _labels() -> jax.Array:
    """Return a batch of labels."""
    return jnp.arange(BATCH, dtype=jnp.int32) % CLASSES


def _embed(enn: AbstractENN, x: jax.Array) -> Any:
    return jax.vmap(enn.embed)(x)


def _head(enn: AbstractENN, embeddings: Any, z: jax.Array) -> jax.Array:
    return jax.vmap(enn.head, in_axes=(0, None))(embeddings, z)


def _heads(enn: AbstractENN, embeddings: Any, zs: jax.Array) -> jax.Array:
    return jax.vmap(enn.heads, in_axes=(0, None))(embeddings, zs)


def embed(value: float) -> Program:
    """What all indices share, for a batch."""
    enn = make_epinet(value)
    return Program(_embed, (enn, _inputs(value)), enn)


def head(value: float) -> Program:
    """One index, for a batch."""
    enn = make_epinet(value)
    return Program(_head, (enn, _embed(enn, _inputs(value)), enn.index.sample(key=jr.key(3))), enn)


def heads(value: float) -> Program:
    """A thousand indices by the exact contraction, for a batch."""
    enn = make_epinet(value)
    return Program(_heads, (enn, _embed(enn, _inputs(value)), enn.index.sample_many(SAMPLES, key=jr.key(3))), enn)


def _evaluation(metric: Any, value: float) -> Program:
    """Return a metric of an epinet as a program."""
    enn = make_epinet(value)

    def evaluate(enn: AbstractENN, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
        return metric(enn, x, y, Draws.sample(enn.index, SAMPLES, key=key, chunk_size=CHUNK))

    return Program(evaluate, (enn, _inputs(value), _labels(), jr.key(4)), enn, TRIPS)


def streamed_losses(value: float) -> Program:
    """Marginal and exact dyadic joint loss and error, streamed over the indices."""
    return _evaluation(log_losses, value)


def dyadic_exact(value: float) -> Program:
    """The dyadic joint loss, averaged exactly over draws."""
    return _evaluation(dyadic_log_loss, value)


def dyadic_sampled(value: float) -> Program:
    """The joint loss of labels drawn from four anchors."""
    return _evaluation(ft.partial(sampled_dyadic_log_loss, num_anchors=4, key=jr.key(5)), value)


def _uncertainty(enn: AbstractENN, x: jax.Array, key: jax.Array) -> Any:
    return uncertainty(enn, x, Draws.sample(enn.index, SAMPLES, key=key, chunk_size=CHUNK))


def decomposition(value: float) -> Program:
    """Total, aleatoric and epistemic uncertainty of a batch."""
    enn = make_epinet(value)
    return Program(_uncertainty, (enn, _inputs(value), jr.key(4)), enn, TRIPS)


def _table(enn: AbstractENN, x: jax.Array, key: jax.Array) -> Any:
    return joint_log_probs(enn, x, Draws.sample(enn.index, SAMPLES, key=key, chunk_size=CHUNK))


def joint_probabilities(value: float) -> Program:
    """The joint probabilities of all labels of two inputs."""
    enn = make_epinet(value)
    return Program(_table, (enn, _inputs(value)[:2], jr.key(4)), enn, TRIPS)


def losses_as_called(value: float) -> Program:
    """The losses as a user calls them: another prior scale must compile nothing."""
    enn = make_epinet(value)

    def call(enn: AbstractENN, x: jax.Array, y: jax.Array) -> Any:
        return log_losses(enn, x, y, Draws.sample(enn.index, CHUNK, key=jr.key(4)))

    return Program(call, (enn, _inputs(value), _labels()), enn)
