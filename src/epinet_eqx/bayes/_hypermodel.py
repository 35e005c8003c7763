"""Hypermodels: the parameters of a network as a function of the index (Section 3.2)."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import check_scalar
from .._keys import named_keys
from ..indices import AbstractIndex, GaussianIndex
from ._bnn import AbstractBNN
from ._parameters import Skeleton, split_parameters

# The standard deviation of a standard normal variable that is truncated at two.
_TRUNCATED_STD = 0.8796256610342398


class LinearHypermodel(AbstractBNN):
    r"""A network whose parameters are linear in the index: $\hat\theta = A z + b$ (Dwaracherla et al., 2020).

    $A$ and $b$ are what is trained, by any loss. The hypermodel agent of the Neural Testbed is this with
    `ScaledGaussianIndex(6)` and a `Prior` that is an `IndexedMLP`.
    """

    weight: Float[Array, "parameters index"]
    bias: Float[Array, " parameters"]
    skeleton: Skeleton
    index: AbstractIndex

    def __init__(
        self,
        network: Callable[[PyTree[Array]], Float[Array, " classes"]],
        index: AbstractIndex,
        *,
        key: PRNGKeyArray,
    ):
        """Initialize as the testbed does: one linear map per parameter array, with variance one over the mean fan.

        Args:
            network: any module that maps one example to its output; the values of its parameters are not used.
            index: the reference distribution, a vector index.
            key: random key.
        """
        if len(index.shape) != 1:
            raise ValueError(f"`index` must be an index with vector values; got shape {index.shape}.")
        self.skeleton = Skeleton(network)
        self.index = index
        weight_key, bias_key = named_keys(key, "weight", "bias")
        sizes = jnp.asarray(self.skeleton.sizes)
        # The size of the array that each parameter is in: the fan-out of its linear map.
        fan_out = jnp.repeat(sizes, sizes, total_repeat_length=self.skeleton.size).astype(float)
        weight = jr.truncated_normal(weight_key, -2.0, 2.0, (self.skeleton.size, index.size))
        bias = jr.truncated_normal(bias_key, -2.0, 2.0, (self.skeleton.size,))
        self.weight = weight * jnp.sqrt(2 / (fan_out + index.size))[:, None] / _TRUNCATED_STD
        self.bias = bias / jnp.sqrt(fan_out) / _TRUNCATED_STD

    def network_at(self, z: Float[Array, " index"]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        """Return the network with parameters `A z + b`."""
        return self.skeleton.build(self.weight @ z + self.bias)


class DiagonalHypermodel(AbstractBNN):
    r"""A network each of whose parameters has an index entry of its own: $\hat\theta = \mu + s \odot z$.

    The same family as `BayesByBackprop`, in other coordinates: here $s$ is free, of either sign, and nothing keeps it
    from zero but the loss, so it is meant for the losses that train an epinet (bootstrap, a `Prior`), whereas
    Bayes by backprop has $s > 0$, a density, and an ELBO.
    """

    mean: Float[Array, " parameters"]
    scale: Float[Array, " parameters"]
    skeleton: Skeleton
    index: GaussianIndex

    def __init__(
        self,
        network: Callable[[PyTree[Array]], Float[Array, " classes"]],
        *,
        scale_init: float | Float[Array, ""] = 0.01,
    ):
        r"""Initialize at a network.

        Args:
            network: any module that maps one example to its output; its parameters are where $\mu$ begins.
            scale_init: where all entries of $s$ begin.
        """
        start = check_scalar("scale_init", jnp.asarray(scale_init, dtype=float), minimum=0.0)
        self.mean, self.skeleton = split_parameters(network)
        self.scale = jnp.broadcast_to(start, self.mean.shape)
        self.index = GaussianIndex(self.skeleton.size)

    def network_at(self, z: Float[Array, " index"]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        r"""Return the network with parameters $\mu + s \odot z$."""
        return self.skeleton.build(self.mean + self.scale * z)
