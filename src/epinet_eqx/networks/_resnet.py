"""Residual networks of images."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._init import Initializer
from ._batch_norm import BatchNorm
from ._image_layers import ChannelDropout, ImageConv, Padding, max_pool
from ._mlp import Linear
from ._resnet_blocks import AbstractBlock
from ._stateful import AbstractStatefulNetwork


class Stem(eqx.Module):
    """The first convolution, with normalization and ReLU, with 3x3 max-pooling at stride 2, with both or neither."""

    conv: ImageConv
    norm: BatchNorm | None
    pool: bool = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        large: bool,
        norm: Callable[[int], BatchNorm] | None,
        padding: Padding,
        initializer: Initializer,
        key: PRNGKeyArray,
    ):
        """Initialize the stem.

        Args:
            in_channels: channels of the images.
            out_channels: channels of the output.
            large: whether to convolve by 7x7 at stride 2 and to pool, for large images, or by 3x3.
            norm: makes a normalization from a number of channels; None leaves it and the ReLU out.
            padding: how to pad.
            initializer: draws the weights.
            key: random key.
        """
        kernel, stride = (7, 2) if large else (3, 1)
        self.conv = ImageConv(
            in_channels, out_channels, kernel, stride, padding=padding, initializer=initializer, key=key
        )
        self.norm = None if norm is None else norm(out_channels)
        self.pool = large


class ResNet(AbstractStatefulNetwork):
    """A stem, groups of residual blocks, a normalization with ReLU if the blocks need it, the mean, a linear layer.

    Images come with their channels first and are held with their channels last. `resnet_v1`, `resnet_v2` and
    `cifar_resnet` put the known ones together.
    """

    stem: Stem
    groups: tuple[tuple[AbstractBlock, ...], ...]
    norm: BatchNorm | None
    linear: Linear
    dropout: ChannelDropout | None

    @property
    def feature_dim(self) -> int:
        """The number of channels of the last group."""
        return self.linear.weight.shape[-1]

    def _drop(
        self, x: Float[Array, "height width channels"], place: int, key: PRNGKeyArray | None, block: int
    ) -> Float[Array, "height width channels"]:
        """Return `x` after the dropout at a place of a block, whose mask is a stream of its own."""
        if self.dropout is None or key is None:
            return x
        return self.dropout(x, key=jr.fold_in(jr.fold_in(key, block), place))

    def _run(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, key: PRNGKeyArray | None
    ) -> tuple[dict[str, Float[Array, "..."]], eqx.nn.State]:
        """Return what every stage makes of one image, with channels last, and the new state."""
        weight = self.stem.conv.weight
        if x.ndim != 3 or x.shape[0] != weight.shape[2]:
            raise ValueError(f"`x` must have shape ({weight.shape[2]}, height, width); got {x.shape}.")
        found = {}
        x = self.stem.conv(jnp.transpose(x, (1, 2, 0)).astype(weight.dtype))
        if self.stem.norm is not None:
            x, state = self.stem.norm(x, state)
            x = self._drop(jax.nn.relu(x), 0, key, 0)
        found["stem"] = x = max_pool(x, self.stem.conv.padding) if self.stem.pool else x
        number = 0
        for group, blocks in enumerate(self.groups, start=1):
            for block in blocks:
                number += 1
                x, state = block(x, state, lambda x, place, number=number: self._drop(x, place, key, number))
            found[f"group{group}"] = x
        if self.norm is not None:
            x, state = self.norm(x, state)
            x = jax.nn.relu(x)
        found["features"] = jnp.mean(x, axis=(0, 1))
        found["output"] = self.linear(found["features"])
        return found, state

    def with_features(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"], eqx.nn.State]:
        """Return the output for one image, the pooled features, and the new state."""
        found, state = self._run(x, state, key)
        return found["output"], found["features"], state

    def stages(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> dict[str, Float[Array, "..."]]:
        """Return `stem`, `group1`, `group2`, ... with their channels first, and the vectors `features` and `output`."""
        found, _ = self._run(x, state, key)
        return {name: jnp.moveaxis(value, -1, 0) for name, value in found.items()}

    def with_masks(self) -> "ResNet":
        """Return the network with its dropout on."""
        if self.dropout is None:
            raise ValueError("`dropout` must have been given to the network, for masks; got None.")
        return eqx.tree_at(lambda network: network.dropout.inference, self, False)
