"""Monte Carlo dropout (Section 3.2)."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from .._checks import Scalar, check_positive, check_share, check_sizes
from .._enn import AbstractENN
from .._init import Initializer, truncated_normal
from .._tree import Frozen
from ..indices import KeyIndex
from ..networks import ConvNet, Linear


class Dropout(eqx.Module):
    """Sets random entries to zero and divides the others by the keep probability, which preserves the mean.

    The mask is a function of the key: with the same key every input has the same mask.
    """

    rate: Frozen[Float[Array, ""]]
    channelwise: bool = eqx.field(static=True)

    def __init__(self, rate: Scalar = 0.1, *, channelwise: bool = False):
        """Initialize the layer.

        Args:
            rate: the probability of being dropped, an array so that sweeping it compiles once.
            channelwise: whether to drop whole channels (the first axis), as usual for feature maps.
        """
        self.rate = Frozen(check_share("rate", rate, below_one=True))
        self.channelwise = channelwise

    def __call__(self, x: Float[Array, "*shape"], *, key: PRNGKeyArray | None = None) -> Float[Array, "*shape"]:
        """Return `x` with the mask of `key`, or unchanged without a key."""
        if key is None:
            return x
        shape = (*x.shape[:1], *(1 for _ in x.shape[1:])) if self.channelwise else x.shape
        kept = 1 - self.rate.value
        # Zero or one over `kept`: depends on the key only, so under a `vmap` over inputs it is computed once.
        mask = jnp.where(jr.bernoulli(key, kept, shape), 1 / kept, 0.0).astype(x.dtype)
        return x * jnp.broadcast_to(mask, x.shape)


class DropoutChain(eqx.Module):
    """A chain of layers; `Dropout` layer number `n` takes its mask from stream `n` of the key."""

    layers: tuple[Callable[..., Any], ...]

    def __call__(self, x: PyTree[Array], *, key: PRNGKeyArray | None = None) -> PyTree[Array]:
        """Return the result for one example with the masks of `key`; without a key nothing is dropped."""
        number = 0
        for layer in self.layers:
            if isinstance(layer, Dropout):
                x = layer(x, key=None if key is None else jr.fold_in(key, number))
                number += 1
            else:
                x = layer(x)
        return x


class MCDropout(AbstractENN):
    """A network with dropout as an ENN: the index is the key of its masks.

    One index is one mask per layer, shared by all inputs of a joint prediction, and in training by a whole batch.
    Layers before the first dropout run once per input, in `embed`.
    """

    network: Callable[..., Float[Array, " classes"]]
    trunk: Callable[[PyTree[Array]], PyTree[Array]] | None
    index: KeyIndex

    def __init__(
        self,
        network: Callable[..., Float[Array, " classes"]],
        trunk: Callable[[PyTree[Array]], PyTree[Array]] | None = None,
    ):
        """Initialize from parts.

        Args:
            network: called as `network(x, key=key)`, its only source of randomness: a `DropoutChain`, or any Equinox
                module with dropout layers.
            trunk: maps one example to the input of the network; by default that is the example itself.
        """
        self.network = network
        self.trunk = trunk
        self.index = KeyIndex()

    @classmethod
    def of(cls, layers: Sequence[Callable[..., Any]]) -> "MCDropout":
        """Return the ENN of a chain of layers, at least one of them a `Dropout`."""
        first = next((number for number, layer in enumerate(layers) if isinstance(layer, Dropout)), None)
        if first is None:
            kinds = [type(layer).__name__ for layer in layers]
            raise ValueError(f"`layers` must have at least one `Dropout`; got {kinds}.")
        trunk = DropoutChain(tuple(layers[:first])) if first else None
        return cls(DropoutChain(tuple(layers[first:])), trunk)

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the input of the network: the example, or the output of the trunk."""
        return x if self.trunk is None else self.trunk(x)

    def heads(self, embedding: PyTree[Array], zs: Key[Array, " samples"]) -> Float[Array, "samples classes"]:
        """Return the outputs with many masks."""
        # The same key for many inputs is the point here, so the reuse checker gets a copy.
        return jax.vmap(lambda z: self.network(embedding, key=z))(jr.clone(zs))


def dropout_mlp(
    in_dim: int,
    out_dim: int,
    hidden: tuple[int, ...] = (100, 100),
    *,
    rate: Scalar = 0.1,
    dropout_input: bool = False,
    activation: Callable[[Array], Array] = jax.nn.relu,
    initializer: Initializer = truncated_normal,
    first_initializer: Initializer | None = None,
    key: PRNGKeyArray,
) -> MCDropout:
    """Return an MLP with dropout on the hidden units before their activation, as in the Neural Testbed.

    Args:
        in_dim: size of the input vector.
        out_dim: number of outputs (classes).
        hidden: sizes of the hidden layers, at least one.
        rate: the probability of being dropped.
        dropout_input: whether to drop entries of the input too.
        activation: activation of the hidden layers.
        initializer: draws the weight and bias of each layer.
        first_initializer: initializer of the first layer, if it is another one.
        key: random key.
    """
    if not hidden:
        raise ValueError(f"`hidden` must have at least one layer, for the masks; got {hidden}.")
    check_sizes("hidden", hidden)
    check_positive("in_dim", in_dim)
    check_positive("out_dim", out_dim)
    sizes = (in_dim, *hidden, out_dim)
    keys = jr.split(key, len(sizes) - 1)
    first = Linear(in_dim, hidden[0], initializer=first_initializer or initializer, key=keys[0])
    layers: list[Callable[..., Any]] = [Dropout(rate), first] if dropout_input else [first]
    for size_in, size_out, layer_key in zip(sizes[1:-1], sizes[2:], keys[1:], strict=True):
        layers += [Dropout(rate), activation, Linear(size_in, size_out, initializer=initializer, key=layer_key)]
    return MCDropout.of(layers)


def channel_dropout(network: ConvNet, rate: Scalar = 0.05) -> MCDropout:
    """Return the ENN of a convolutional network with dropout of whole channels after each activation.

    One index is one mask per layer, for all inputs of a joint prediction. For a ResNet, give its constructor a
    `dropout` and use `MCDropout(with_statistics(network, state).masked)`; for an MLP there is `dropout_mlp`.

    Args:
        network: the network, initialized or trained; it must have a convolution.
        rate: the probability of being dropped, an array so that sweeping it compiles once.
    """
    if not isinstance(network, ConvNet) or not network.convs:
        found = "one without" if isinstance(network, ConvNet) else type(network).__name__
        raise ValueError(f"`network` must be a `ConvNet` with convolutions; got {found}.")
    layers: list[Callable[..., Any]] = []
    for conv in network.convs:
        layers += [conv, network.activation, Dropout(rate, channelwise=True)]
    return MCDropout.of([*layers, jnp.ravel, network.linear])
