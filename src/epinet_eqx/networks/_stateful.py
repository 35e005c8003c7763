"""Networks with running statistics, batch normalization, and their stateless form for an ENN."""

import abc
import math
from collections.abc import Hashable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import check_positive
from .._tree import Frozen
from ._abstract import AbstractNetwork


class Statistics(NamedTuple):
    """The running values of a `BatchNorm`, and how many batches they have seen."""

    mean: Float[Array, " channels"]
    var: Float[Array, " channels"]
    count: Int[Array, ""]


class BatchNorm(eqx.nn.StatefulLayer):
    """Batch normalization over the last axis of one example, mapped over the batch by `jax.vmap(axis_name=...)`.

    In training an example is normalized by the mean and the biased variance of its batch, over all other axes; the
    running values take the unbiased variance, as in PyTorch. In inference the running values are used, and no axis
    name is needed. All statistics are computed in single precision, also for examples of half precision.

    PyTorch starts from mean 0 and variance 1, which bias the running values until they have decayed. Here, by default,
    the running values are weighted means over the batches alone, with weights that decay by `momentum` per batch: after
    the first batch they are its statistics, and in the long run PyTorch's.
    """

    weight: Float[Array, " channels"]
    bias: Float[Array, " channels"]
    statistics: eqx.nn.StateIndex[Statistics]
    inference: bool
    momentum: float = eqx.field(static=True)
    eps: float = eqx.field(static=True)
    debias: bool = eqx.field(static=True)
    axis_name: Hashable = eqx.field(static=True)

    def __init__(
        self,
        num_channels: int,
        *,
        momentum: float = 0.9,
        eps: float = 1e-5,
        debias: bool = True,
        axis_name: Hashable = "batch",
    ):
        """Initialize with unit scale and zero offset.

        Args:
            num_channels: size of the last axis.
            momentum: the weight of the old running value; PyTorch's `momentum` is one minus this.
            eps: added to the variance.
            debias: whether the running values ignore their initial values; if not, they equal PyTorch's at every step.
            axis_name: name of the mapped batch axis, or a tuple of names.
        """
        check_positive("num_channels", num_channels)
        if not 0 <= momentum < 1:
            raise ValueError(f"`momentum` must be in [0, 1); got {momentum}.")
        if not eps > 0:
            raise ValueError(f"`eps` must be positive; got {eps}.")
        self.weight = jnp.ones(num_channels)
        self.bias = jnp.zeros(num_channels)
        self.statistics = eqx.nn.StateIndex(
            Statistics(jnp.zeros(num_channels), jnp.ones(num_channels), jnp.zeros((), dtype=jnp.int32))
        )
        self.inference = False
        self.momentum = momentum
        self.eps = eps
        self.debias = debias
        self.axis_name = axis_name

    def _axis_size(self) -> int:
        """Return the number of examples in the batch."""
        try:
            return jax.lax.psum(1, self.axis_name)
        except NameError:
            raise ValueError(
                f"`axis_name` must be that of an enclosing `jax.vmap` over the batch; got {self.axis_name!r}. To use "
                "the running values instead, call `eqx.nn.inference_mode` on the network."
            ) from None

    def _updated(
        self, running: Statistics, mean: Float[Array, " channels"], var: Float[Array, " channels"], size: int
    ) -> Statistics:
        """Return the running values after a batch of `size` values per channel, with this mean and biased variance."""
        if size < 2:
            raise ValueError(f"`x` must have at least 2 values per channel in the batch, for a variance; got {size}.")
        count = running.count + 1
        weight = jnp.asarray(1 - self.momentum, dtype=running.mean.dtype)
        if self.debias:
            weight = weight / (1 - self.momentum ** count.astype(weight.dtype))
        unbiased = var * (size / (size - 1))
        return Statistics(
            running.mean + weight * (mean.astype(weight.dtype) - running.mean),
            running.var + weight * (unbiased.astype(weight.dtype) - running.var),
            count,
        )

    def __call__(
        self, x: Float[Array, "*spatial channels"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, "*spatial channels"], eqx.nn.State]:
        """Return one normalized example and the new state; the key is not used."""
        if x.ndim == 0 or x.shape[-1:] != self.weight.shape:
            raise ValueError(f"`x` must have {self.weight.size} channels in its last axis; got shape {x.shape}.")
        wide = x if x.dtype.itemsize >= 4 else x.astype(jnp.float32)
        lead = (None,) * (x.ndim - 1)
        running = state.get(self.statistics)
        if self.inference:
            mean, var = running.mean.astype(wide.dtype), running.var.astype(wide.dtype)
        else:
            size = self._axis_size() * math.prod(x.shape[:-1])
            axes = tuple(range(x.ndim - 1))
            mean = jax.lax.pmean(jnp.mean(wide, axis=axes), self.axis_name)
            var = jax.lax.pmean(jnp.mean(jnp.square(wide - mean[lead]), axis=axes), self.axis_name)
            state = state.set(self.statistics, self._updated(running, mean, var, size))
        scale = self.weight.astype(wide.dtype) * jax.lax.rsqrt(var + self.eps)
        return ((wide - mean[lead]) * scale[lead] + self.bias.astype(wide.dtype)[lead]).astype(x.dtype), state


class AbstractStatefulNetwork(eqx.Module):
    """A network of images whose batch normalizations keep running values in an `eqx.nn.State`.

    It maps one example; a batch is `jax.vmap(network, in_axes=(0, None), out_axes=(0, None), axis_name="batch")`. After
    `eqx.nn.inference_mode(network)` it uses the running values, keeps the state unchanged and disables dropout.
    """

    @property
    @abc.abstractmethod
    def feature_dim(self) -> int:
        """The size of the pooled features."""

    @abc.abstractmethod
    def with_features(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"], eqx.nn.State]:
        """Return the output for one image, its pooled features, from which the output is linear, and the new state."""

    @abc.abstractmethod
    def stages(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> dict[str, Float[Array, "..."]]:
        """Return the outputs of all stages for one image by name; images have their channels first."""

    @abc.abstractmethod
    def with_masks(self) -> "AbstractStatefulNetwork":
        """Return the network with dropout enabled, even in inference mode."""

    def __call__(
        self, x: Float[Array, "channels height width"], state: eqx.nn.State, *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " classes"], eqx.nn.State]:
        """Return the output for one image and the new state; `key` draws the dropout masks."""
        output, _, state = self.with_features(x, state, key=key)
        return output, state


class FixedStatistics(AbstractNetwork):
    """A network in inference mode with frozen running values: a base for `attach`."""

    network: AbstractStatefulNetwork
    state: Frozen[eqx.nn.State]

    @property
    def feature_dim(self) -> int:
        """The size of the pooled features."""
        return self.network.feature_dim

    def with_features(
        self, x: Float[Array, "channels height width"]
    ) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the output for one image and the pooled features."""
        output, features, _ = self.network.with_features(x, self.state.value)
        return output, features

    def stages(self, x: Float[Array, "channels height width"]) -> dict[str, Float[Array, "..."]]:
        """Return the outputs of all stages for one image by name; images have their channels first."""
        return self.network.stages(x, self.state.value)

    def masked(
        self, x: Float[Array, "channels height width"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " classes"]:
        """Return the output with the dropout masks of `key`: `MCDropout(network.masked)` is an ENN."""
        return self.network.with_masks()(x, self.state.value, key=key)[0]


def with_statistics(network: AbstractStatefulNetwork, state: eqx.nn.State) -> FixedStatistics:
    """Return the stateless network that uses the running values of `state`.

    Training changes its weights, but not the running values, which it keeps normalizing by.
    """
    return FixedStatistics(eqx.nn.inference_mode(network), Frozen(state))
