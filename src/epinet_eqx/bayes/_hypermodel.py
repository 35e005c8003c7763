"""Hypermodels: the parameters of a network as a function of the index (Sections 3.2 and 5)."""

import itertools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._checks import Scalar, check_positive, check_scalar, check_shape, check_sizes
from .._enn import AbstractENN
from .._keys import named_keys
from ..indices import AbstractIndex, GaussianIndex
from ._bnn import AbstractBNN
from ._parameters import Skeleton, split_parameters

# The standard deviation of a standard normal variable that is truncated at two.
_TRUNCATED_STD = 0.8796256610342398


class LinearHypermodel(AbstractBNN):
    r"""A network whose parameters are linear in the index: $\hat\theta = A z + b$ (Dwaracherla et al., 2020).

    Train $A$ and $b$ with any loss. The hypermodel agent of the Neural Testbed is this with
    `ScaledGaussianIndex(6)` and a `Prior` that is an `IndexedMLP`.
    """

    weight: Float[Array, "parameters index"]
    bias: Float[Array, " parameters"]
    skeleton: Skeleton
    index: AbstractIndex

    def __init__(
        self, network: Callable[[PyTree[Array]], Float[Array, " classes"]], index: AbstractIndex, *, key: PRNGKeyArray
    ):
        """Initialize as in the testbed: one linear map per parameter array, with variance one over the mean fan.

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
        # The size of the array that holds each parameter: the fan-out of its linear map.
        fan_out = jnp.repeat(sizes, sizes, total_repeat_length=self.skeleton.size).astype(float)
        weight = jr.truncated_normal(weight_key, -2.0, 2.0, (self.skeleton.size, index.size))
        bias = jr.truncated_normal(bias_key, -2.0, 2.0, (self.skeleton.size,))
        self.weight = weight * jnp.sqrt(2 / (fan_out + index.size))[:, None] / _TRUNCATED_STD
        self.bias = bias / jnp.sqrt(fan_out) / _TRUNCATED_STD

    def network_at(self, z: Float[Array, " index"]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        """Return the network with parameters `A z + b`."""
        return self.skeleton.build(self.weight @ z + self.bias)


class DiagonalHypermodel(AbstractBNN):
    r"""A network whose parameters each have their own entry of the index: $\hat\theta = \mu + s \odot z$.

    The same family as `BayesByBackprop` in other coordinates: $s$ may have either sign, and only the loss keeps it from
    zero, so use the losses that train an epinet (bootstrap, a `Prior`). Bayes by backprop has $s > 0$, a density, and
    an ELBO.
    """

    mean: Float[Array, " parameters"]
    scale: Float[Array, " parameters"]
    skeleton: Skeleton
    index: GaussianIndex

    def __init__(self, network: Callable[[PyTree[Array]], Float[Array, " classes"]], *, scale_init: Scalar = 0.01):
        r"""Initialize at a network.

        Args:
            network: any module that maps one example to its output; its parameters initialize $\mu$.
            scale_init: initial value of all entries of $s$.
        """
        start = check_scalar("scale_init", scale_init, minimum=0.0)
        self.mean, self.skeleton = split_parameters(network)
        self.scale = jnp.broadcast_to(start, self.mean.shape)
        self.index = GaussianIndex(self.skeleton.size)

    def network_at(self, z: Float[Array, " index"]) -> Callable[[PyTree[Array]], Float[Array, " classes"]]:
        r"""Return the network with parameters $\mu + s \odot z$."""
        return self.skeleton.build(self.mean + self.scale * z)


class IndexedLinear(eqx.Module):
    """An affine map whose weight and bias are linear in a slice of the index."""

    weight: Float[Array, "out in index"]
    bias: Float[Array, "out index"]
    start: int = eqx.field(static=True)

    def __init__(self, weight: Float[Array, "out in index"], bias: Float[Array, "out index"], start: int):
        """Initialize from the coefficients and the start of the slice that they multiply."""
        self.weight = weight
        self.bias = bias
        self.start = start

    def __call__(self, x: Float[Array, " in"], z: Float[Array, " all_index"]) -> Float[Array, " out"]:
        """Return `W(z) x + b(z)`."""
        part = z[self.start : self.start + self.bias.shape[-1]]
        return (self.weight @ part) @ x + self.bias @ part


def _slices(index_dim: int, num_layers: int) -> list[tuple[int, int]]:
    """Return start and length of each layer's slice: disjoint, or the whole index if it has too few entries."""
    if index_dim < num_layers:
        return [(0, index_dim)] * num_layers
    lengths = [index_dim // num_layers + (layer < index_dim % num_layers) for layer in range(num_layers)]
    return list(zip(itertools.accumulate(lengths, initial=0), lengths, strict=False))


class IndexedMLP(AbstractENN):
    r"""An MLP, each of whose weights is $c^\top z_l$ with $c$ uniform on the unit sphere.

    $z_l$ is the part of the index that belongs to layer $l$: the index is split into one part per layer.
    Weights are divided by the root of the fan-in in all layers but the first. This is the prior function of the
    testbed's hypermodel agent, the `Prior` of a `LinearHypermodel`; the first layer's products with the input
    are shared by all indices.
    """

    layers: tuple[IndexedLinear, ...]
    index: AbstractIndex
    in_dim: int = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden: tuple[int, ...],
        index: AbstractIndex,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        key: PRNGKeyArray,
    ):
        """Initialize the network.

        Args:
            in_dim: size of the input vector.
            out_dim: number of outputs (classes).
            hidden: sizes of the hidden layers; may be empty.
            index: the reference distribution, a vector index.
            activation: activation of the hidden layers.
            key: random key.
        """
        check_positive("in_dim", in_dim)
        check_positive("out_dim", out_dim)
        check_sizes("hidden", hidden)
        if len(index.shape) != 1:
            raise ValueError(f"`index` must be an index with vector values; got shape {index.shape}.")
        sizes = (in_dim, *hidden, out_dim)
        layers = []
        for layer, (start, length) in enumerate(_slices(index.size, len(sizes) - 1)):
            weight_key, bias_key = named_keys(jr.fold_in(key, layer), "weight", "bias")
            weight = jr.normal(weight_key, (sizes[layer + 1], sizes[layer], length))
            bias = jr.normal(bias_key, (sizes[layer + 1], length))
            divisor = 1.0 if layer == 0 else math.sqrt(sizes[layer])
            weight = weight / jnp.linalg.norm(weight, axis=-1, keepdims=True) / divisor
            layers.append(IndexedLinear(weight, bias / jnp.linalg.norm(bias, axis=-1, keepdims=True), start))
        self.layers = tuple(layers)
        self.index = index
        self.in_dim = in_dim
        self.activation = activation

    def embed(self, x: Float[Array, " in"]) -> Float[Array, "units index"]:
        """Return the coefficients of the first layer's units in the index."""
        check_shape("x", x, (self.in_dim,))
        first = self.layers[0]
        return jnp.einsum("oid,i->od", first.weight, x) + first.bias

    def heads(
        self, embedding: Float[Array, "units index"], zs: Float[Array, "samples all_index"]
    ) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices; the weights of an index are computed once for all inputs."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))

        def output(z: Float[Array, " all_index"]) -> Float[Array, " classes"]:
            units = embedding @ z[: embedding.shape[-1]]
            for layer in self.layers[1:]:
                units = layer(self.activation(units), z)
            return units

        return jax.vmap(output)(zs)
