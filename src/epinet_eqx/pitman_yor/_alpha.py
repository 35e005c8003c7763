"""The aleatoric share of uncertainty: a number, or a small function of features."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_finite, check_shape
from ._urn import MIN_ALPHA, check_alpha


class AbstractAlpha(eqx.Module):
    """How `alpha` depends on the input."""

    @abc.abstractmethod
    def __call__(self, standardized: Float[Array, " features"]) -> Float[Array, ""]:
        """Return `alpha`, in [0.001, 1], from the standardized features of one input."""


class ConstantAlpha(AbstractAlpha):
    """The same `alpha` at every input."""

    value: Float[Array, ""]

    def __init__(self, value: float | Float[Array, ""]):
        """Initialize with the number, an array so that sweeping it compiles once."""
        self.value = check_alpha(value)

    def __call__(self, standardized: Float[Array, " features"]) -> Float[Array, ""]:
        """Return the number; what training moved out of the range is moved back."""
        return jnp.clip(self.value, MIN_ALPHA, 1.0)


class LogisticAlpha(AbstractAlpha):
    r"""A logistic function of standardized features: $\alpha(\phi) = \mathrm{sigmoid}(a^\top \phi + b)$."""

    weight: Float[Array, " features"]
    bias: Float[Array, ""]

    def __init__(self, weight: Float[Array, " features"], bias: float | Float[Array, ""]):
        """Initialize with a weight for each feature and the bias."""
        self.weight = check_finite("weight", weight)
        self.bias = check_finite("bias", jnp.asarray(bias, dtype=float))

    def __call__(self, standardized: Float[Array, " features"]) -> Float[Array, ""]:
        """Return `alpha` at one input."""
        check_shape("standardized", standardized, self.weight.shape)
        return MIN_ALPHA + (1 - MIN_ALPHA) * jax.nn.sigmoid(self.weight @ standardized + self.bias)
