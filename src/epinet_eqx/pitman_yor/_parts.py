"""Functions of features: the aleatoric share of uncertainty, and Gaussian fields."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import as_floats, check_finite, check_key, check_positive, check_scalar, check_shape
from .._tree import Frozen, unwrap
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
        check_shape("alpha", self.value, ())

    def __call__(self, standardized: Float[Array, " features"]) -> Float[Array, ""]:
        """Return the number, clipped to its range in case training moved it out."""
        return jnp.clip(self.value, MIN_ALPHA, 1.0)


class LogisticAlpha(AbstractAlpha):
    r"""A logistic function of standardized features: $\alpha(\phi) = \mathrm{sigmoid}(a^\top \phi + b)$."""

    weight: Float[Array, " features"]
    bias: Float[Array, ""]

    def __init__(self, weight: Float[Array, " features"], bias: float | Float[Array, ""]):
        """Initialize with a weight for each feature and the bias."""
        self.weight = check_finite("weight", as_floats("weight", weight))
        if self.weight.ndim != 1:
            raise ValueError(f"`weight` must hold one number per feature; got shape {self.weight.shape}.")
        self.bias = check_scalar("bias", bias)

    def __call__(self, standardized: Float[Array, " features"]) -> Float[Array, ""]:
        """Return `alpha` at one input."""
        check_shape("standardized", standardized, self.weight.shape)
        return MIN_ALPHA + (1 - MIN_ALPHA) * jax.nn.sigmoid(self.weight @ standardized + self.bias)


# Features that vary by less, relative to their size, are constant up to rounding.
_MIN_VARIATION = 1e-6


class FourierField(eqx.Module):
    r"""Random Fourier features $\psi(\phi)$ with $\|\psi\| = 1$: a Gaussian $z$ makes the field $z^\top \psi$.

    Pairs of cosine and sine have a sum of squares of one, so the field has variance one at *every* input, near or far
    from the data. The correlation of two inputs is about $\exp(-d^2 / 2 \ell^2)$ up to an error of
    $1 / \sqrt{2 \cdot \text{num\_frequencies}}$, where $d$ is the root mean square difference of their standardized
    features.
    """

    mean: Frozen[Float[Array, " features"]]
    weight: Frozen[Float[Array, " features"]]
    frequencies: Frozen[Float[Array, "frequencies features"]]
    length_scale: Float[Array, ""] | Frozen[Float[Array, ""]]

    def __init__(
        self,
        features: Float[Array, "batch features"],
        num_frequencies: int,
        *,
        length_scale: float | Float[Array, ""],
        freeze: bool = True,
        key: PRNGKeyArray,
    ):
        """Initialize from features of typical inputs, which give the mean and deviation of each.

        Args:
            features: one row per input; features that are constant are ignored.
            num_frequencies: number of pairs of cosine and sine.
            length_scale: how far knowledge reaches, in units of standardized features.
            freeze: whether training leaves the length scale unchanged.
            key: random key of the frequencies.
        """
        check_positive("num_frequencies", num_frequencies)
        check_key("key", key)
        features = as_floats("features", features)
        if features.ndim != 2:
            raise ValueError(f"`features` must have one row per input; got shape {features.shape}.")
        if features.shape[0] < 2:
            raise ValueError(
                f"`examples` must hold at least 2 inputs, to standardize features by; got {features.shape[0]}."
            )
        features = check_finite("features", features)
        mean, deviation = jnp.mean(features, axis=0), jnp.std(features, axis=0)
        varies = deviation > _MIN_VARIATION * jnp.maximum(jnp.max(jnp.abs(features), axis=0), 1e-30)
        count = int(jnp.sum(varies))
        if count == 0:
            raise ValueError(
                "`examples` must be inputs at which features of `base` vary; "
                f"got zero variance of all {features.shape[1]} features."
            )
        value = check_scalar("length_scale", length_scale, minimum=1e-6)
        self.mean = Frozen(mean)
        self.weight = Frozen(jnp.where(varies, 1 / jnp.where(varies, deviation, 1.0), 0.0))
        frequencies = jr.normal(key, (num_frequencies, features.shape[1]))
        self.frequencies = Frozen(frequencies / jnp.sqrt(jnp.asarray(count, dtype=float)))
        self.length_scale = Frozen(value) if freeze else value

    def standardize(self, features: Float[Array, " features"]) -> Float[Array, " features"]:
        """Return features with mean 0 and deviation 1 over typical inputs; constant ones are 0."""
        check_shape("features", features, self.mean.content.shape)
        return (features - self.mean.value) * self.weight.value

    def __call__(self, standardized: Float[Array, " features"]) -> Float[Array, " field"]:
        """Return the unit vector of one input, from its standardized features."""
        angles = self.frequencies.value @ standardized / unwrap(self.length_scale)
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)]) * angles.shape[0] ** -0.5
