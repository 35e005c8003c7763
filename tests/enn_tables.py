"""Tiny ENNs whose predictions are known in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.indices import AbstractIndex, GaussianIndex, KeyIndex, ParticleIndex


class Table(AbstractENN):
    """Outputs read from a table of particles, inputs and classes; the input `x` is the number of a column."""

    outputs: jnp.ndarray
    index: AbstractIndex

    def __init__(self, outputs):
        self.outputs = jnp.asarray(outputs, dtype=float)
        self.index = ParticleIndex(self.outputs.shape[0])

    def embed(self, x):
        return self.outputs[:, x]

    def heads(self, embedding, zs):
        return embedding[zs]


class Linear(AbstractENN):
    """The function `weight @ (x * z)` with a Gaussian index: its joint predictions of a regression are Gaussian."""

    weight: jnp.ndarray
    index: AbstractIndex

    def __init__(self, weight):
        self.weight = jnp.asarray(weight, dtype=float)
        self.index = GaussianIndex(self.weight.shape[1])

    def embed(self, x):
        return self.weight * x[None, :]

    def heads(self, embedding, zs):
        return zs @ embedding.T


class Noise(AbstractENN):
    """The input plus noise that is drawn from the index, which is a random key."""

    index: AbstractIndex

    def __init__(self):
        self.index = KeyIndex()

    def embed(self, x):
        return x

    def heads(self, embedding, zs):
        return jax.vmap(lambda z: embedding + jr.normal(*named_keys(z, "noise"), embedding.shape))(zs)


class Traces:
    """How often something was traced."""

    count = 0


class Counting(AbstractENN):
    """Any ENN, which counts how often its `embed` is traced."""

    enn: AbstractENN
    traces: Traces = eqx.field(static=True)

    @property
    def index(self):
        return self.enn.index

    def embed(self, x):
        self.traces.count += 1
        return self.enn.embed(x)

    def heads(self, embedding, zs):
        return self.enn.heads(embedding, zs)
