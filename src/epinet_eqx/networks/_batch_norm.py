"""Batch normalization whose running values can be used from the first step on."""

import math
from collections.abc import Hashable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._checks import check_positive


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

    PyTorch starts at mean 0 and variance 1, and so normalizes by that fiction until it has decayed. Here the running
    values are by default the weighted means of what was seen and of nothing else (the weights decay by `momentum` per
    batch): after the first batch they are its statistics, and in the long run they are PyTorch's.
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
            eps: what is added to the variance.
            debias: whether running values ignore their starting point; if not, they are PyTorch's at every step.
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
