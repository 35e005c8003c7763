"""Initializers of linear and convolutional layers: `(key, shape) -> (weight, bias)`."""

import math
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._keys import named_keys


@runtime_checkable
class Initializer(Protocol):
    """Draws the parameters of a layer whose weight has shape `(out, in, *kernel)`."""

    def __call__(
        self, key: PRNGKeyArray, shape: tuple[int, ...]
    ) -> tuple[Float[Array, "out in *kernel"], Float[Array, " out"]]:
        """Return a weight of this shape and a bias of its first size."""
        ...


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return fan-in and fan-out."""
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def truncated_normal(
    key: PRNGKeyArray, shape: tuple[int, ...]
) -> tuple[Float[Array, "out in *kernel"], Float[Array, " out"]]:
    """The initializer of the authors' code: normal truncated at two, divided by the root of the fan-in; zero bias.

    Without a correction for the truncation, the standard deviation is 0.8796 over the root of the fan-in.
    """
    fan_in, _ = _fans(shape)
    return jr.truncated_normal(key, -2.0, 2.0, shape) / math.sqrt(fan_in), jnp.zeros(shape[0])


def truncated_normal_with_bias(
    key: PRNGKeyArray, shape: tuple[int, ...]
) -> tuple[Float[Array, "out in *kernel"], Float[Array, " out"]]:
    """`truncated_normal` with a bias from the distribution of the weights."""
    weight_key, bias_key = named_keys(key, "weight", "bias")
    fan_in, _ = _fans(shape)
    bias = jr.truncated_normal(bias_key, -2.0, 2.0, shape[:1]) / math.sqrt(fan_in)
    return truncated_normal(weight_key, shape)[0], bias


def glorot_uniform(
    key: PRNGKeyArray, shape: tuple[int, ...]
) -> tuple[Float[Array, "out in *kernel"], Float[Array, " out"]]:
    """Glorot and Bengio (2010): uniform with variance two over the sum of fan-in and fan-out; zero bias."""
    fan_in, fan_out = _fans(shape)
    limit = math.sqrt(6 / (fan_in + fan_out))
    return jr.uniform(key, shape, minval=-limit, maxval=limit), jnp.zeros(shape[0])


def equinox_uniform(
    key: PRNGKeyArray, shape: tuple[int, ...]
) -> tuple[Float[Array, "out in *kernel"], Float[Array, " out"]]:
    """Equinox's own: weight and bias uniform within one over the root of the fan-in."""
    weight_key, bias_key = named_keys(key, "weight", "bias")
    fan_in, _ = _fans(shape)
    limit = 1 / math.sqrt(fan_in)
    weight = jr.uniform(weight_key, shape, minval=-limit, maxval=limit)
    return weight, jr.uniform(bias_key, shape[:1], minval=-limit, maxval=limit)
