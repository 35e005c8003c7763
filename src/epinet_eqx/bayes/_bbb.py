"""Bayes by backprop (Section 3.2)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import check_shape
from ..indices import GaussianIndex
from ._bnn import AbstractBNN
from ._parameters import Skeleton, split_parameters


class BayesByBackprop(AbstractBNN):
    r"""A mean-field Gaussian over the parameters of a network (Blundell et al., 2015).

    The parameters at index $z \sim N(0, I)$ are $\hat\theta = \mu + \sigma \odot z$, with $\sigma$ the softplus of
    $\rho$: the transport map in the proof of Theorem 3. $\mu$ and $\rho$ are what is trained, with the penalty
    `losses.GaussianKL` or `losses.ScaleMixtureKL`. Parameters inside a `Frozen` part of the network stay as they are.
    """

    mean: Float[Array, " parameters"]
    rho: Float[Array, " parameters"]
    skeleton: Skeleton
    index: GaussianIndex

    def __init__(self, network: Callable[[PyTree[Array]], Any], *, sigma_init: float = 0.01):
        r"""Initialize at a network.

        Args:
            network: any module that maps one example to its output; its parameters are where $\mu$ begins.
            sigma_init: where all entries of $\sigma$ begin.
        """
        if not (sigma_init > 0 and math.isfinite(sigma_init)):
            raise ValueError(f"`sigma_init` must be positive and finite; got {sigma_init}.")
        self.mean, self.skeleton = split_parameters(network)
        # The inverse of softplus, written so that it neither overflows nor loses small values.
        self.rho = jnp.full_like(self.mean, sigma_init + math.log(-math.expm1(-sigma_init)))
        self.index = GaussianIndex(self.skeleton.size)

    @property
    def sigma(self) -> Float[Array, " parameters"]:
        """The standard deviation of each parameter."""
        return jax.nn.softplus(self.rho)

    def parameters_at(self, z: Float[Array, " index"]) -> Float[Array, " parameters"]:
        r"""Return $\hat\theta = \mu + \sigma \odot z$."""
        check_shape("z", z, self.index.shape)
        return self.mean + self.sigma * z

    def network_at(self, z: Float[Array, " index"]) -> Any:
        """Return the network with the parameters of `z`."""
        return self.skeleton.build(self.parameters_at(z))
