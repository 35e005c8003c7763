"""Training an epinet of ImageNet's size on stored outputs, against a loop written by hand for this one case."""

import functools as ft
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import epinet_eqx as epi
from epinet_eqx.epinet import MLPEpinet
from epinet_eqx.losses import Batch, CrossEntropy
from epinet_eqx.networks import FunctionNetwork

from ._measure import Ratio, minimum_times

EXAMPLES, FEATURES, CLASSES, INDEX_DIM, HIDDEN = 1000, 1280, 1000, 30, 50
BATCH, SAMPLES, STEPS = 100, 5, 100
RATE, L2, SMOOTHING = 0.01, 1e-4, 0.1

Weights = dict[str, jax.Array]


def weights_of(layers: tuple) -> Weights:
    """Return the weights of an `MLPEpinet`, those of the last layer by index and class."""
    first, last = layers
    second = last.weight.reshape(INDEX_DIM, CLASSES, HIDDEN)
    return {"w": first.weight, "b": first.bias, "w2": second, "b2": last.bias.reshape(INDEX_DIM, CLASSES)}


def outputs(weights: Weights, features: jax.Array, zs: jax.Array) -> jax.Array:
    """Return what an epinet adds to logits, by index and example."""
    shared = features @ weights["w"][:, :FEATURES].T + weights["b"]
    units = jax.nn.relu(shared[None] + (zs @ weights["w"][:, FEATURES:].T)[:, None])
    contracted = jnp.tensordot(zs, weights["w2"], axes=1)
    return jnp.einsum("mbh,mch->mbc", units, contracted) + (zs @ weights["b2"])[:, None]


def loss(weights: Weights, prior: Weights, x: dict[str, jax.Array], y: jax.Array, zs: jax.Array) -> jax.Array:
    """Return the smoothed cross-entropy with its penalty."""
    own, fixed = outputs(weights, x["features"], zs), jax.lax.stop_gradient(outputs(prior, x["features"], zs))
    log_p = jax.nn.log_softmax(x["logits"][None] + own + fixed)
    right = jnp.take_along_axis(log_p, y[None, :, None], axis=2)[:, :, 0]
    data = -jnp.mean((1 - SMOOTHING) * right + SMOOTHING * jnp.mean(log_p, axis=2))
    return data + L2 * sum(jnp.sum(leaf**2) for leaf in weights.values())


@jax.jit
def by_hand(weights: Weights, prior: Weights, x: dict[str, jax.Array], y: jax.Array, key: jax.Array) -> Weights:
    """Return the weights after all steps of Nesterov's method, which checks nothing and keeps no losses."""

    def body(step: jax.Array, carry: tuple[Weights, Weights]) -> tuple[Weights, Weights]:
        weights, momentum = carry
        ids_key, index_key = jr.split(jr.fold_in(key, step))
        ids, zs = jr.randint(ids_key, (BATCH,), 0, EXAMPLES), jr.normal(index_key, (SAMPLES, INDEX_DIM))
        gradient = jax.grad(loss)(weights, prior, jax.tree.map(lambda leaf: leaf[ids], x), y[ids], zs)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        new = jax.tree.map(lambda w, m, g: w - RATE * (0.9 * m + g), weights, momentum, gradient)
        return new, momentum

    return jax.lax.fori_loop(0, STEPS, body, (weights, jax.tree.map(jnp.zeros_like, weights)))[0]


def main() -> list[Ratio]:
    """Return the time of `fit` over that of the loop."""
    feature_key, label_key, model_key, train_key = jr.split(jr.key(0), 4)
    features = jnp.abs(jr.normal(feature_key, (EXAMPLES, FEATURES)))
    x = {"features": features, "logits": 3 * features[:, :CLASSES]}
    y = jr.randint(label_key, (EXAMPLES,), 0, CLASSES)
    base = FunctionNetwork(lambda x: (x["logits"], x["features"]))
    enn = epi.attach(base, example=jax.tree.map(lambda leaf: leaf[0], x), index_dim=INDEX_DIM, key=model_key)
    learnable, prior = enn.learnable, enn.priors[0].enn.content
    assert isinstance(learnable, MLPEpinet) and isinstance(prior, MLPEpinet)
    optimizer = optax.sgd(RATE, momentum=0.9, nesterov=True)
    ours = ft.partial(
        epi.training.fit,
        enn,
        Batch.of(x, y),
        CrossEntropy(l2=L2, label_smoothing=SMOOTHING),
        num_steps=STEPS,
        batch_size=BATCH,
        optimizer=optimizer,
        num_index_samples=SAMPLES,
        progress=False,
        key=train_key,
    )
    theirs = ft.partial(by_hand, weights_of(learnable.layers), weights_of(prior.layers), x, y, train_key)
    seconds, by_hand_seconds = minimum_times(
        [lambda: eqx.filter(ours().enn, eqx.is_array), theirs], rounds=3, clock=time.process_time
    )
    name = f"large epinet: time of `fit` over a loop written by hand ({1000 * seconds / STEPS:.1f} ms per step)"
    return [Ratio(name, seconds / by_hand_seconds, 1.6, at_most=True)]
