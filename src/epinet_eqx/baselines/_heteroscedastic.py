"""Logits with an input-dependent covariance (Collier et al., 2021): the paper's baseline "het" (Section 6)."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Scalar, check_positive, check_scalar, check_shape
from .._enn import AbstractENN
from .._init import Initializer, truncated_normal
from .._keys import named_keys
from .._tree import Frozen
from ..indices import GaussianIndex
from ..networks import Linear

# The smallest standard deviation of a logit.
_MIN_DEVIATION = 1e-3


class HeteroscedasticEmbedding(NamedTuple):
    """What all indices share: the mean of the logits, the factors of their covariance, and its diagonal."""

    mean: Float[Array, " classes"]
    factors: Float[Array, "rank classes"]
    deviation: Float[Array, " classes"]


class Heteroscedastic(AbstractENN):
    r"""Logits $(\mu(x) + V(x) \epsilon_1 + d(x) \odot \epsilon_2) / T$ with the index $z = (\epsilon_1, \epsilon_2)$.

    $\mu$, $V$ (classes times `rank`) and $d$ (softplus plus 0.001) are linear in the features, the input of this ENN
    (see `combinators.OnTrunk`). All inputs share the $z$ of a joint prediction.

    The average log loss of Algorithm 1 is smallest without noise. The method minimizes the log loss of the *average*
    prediction instead: train `combinators.Marginalized(enn, num_samples)`.
    """

    mean: Linear
    factors: Linear
    deviation: Linear
    temperature: Frozen[Float[Array, ""]]
    index: GaussianIndex
    feature_dim: int = eqx.field(static=True)
    rank: int = eqx.field(static=True)

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        rank: int = 15,
        temperature: Scalar = 1.5,
        initializer: Initializer = truncated_normal,
        key: PRNGKeyArray,
    ):
        """Initialize the ENN.

        Args:
            feature_dim: size of the feature vector.
            num_classes: number of logits.
            rank: number of factors of the covariance.
            temperature: divides the logits; may be traced, so that sweeping it compiles once.
            initializer: draws the weight and bias of each of the three linear maps.
            key: random key.
        """
        for name, value in (("feature_dim", feature_dim), ("num_classes", num_classes), ("rank", rank)):
            check_positive(name, value)
        mean_key, factor_key, deviation_key = named_keys(key, "mean", "factors", "deviation")
        self.mean = Linear(feature_dim, num_classes, initializer=initializer, key=mean_key)
        self.factors = Linear(feature_dim, rank * num_classes, initializer=initializer, key=factor_key)
        self.deviation = Linear(feature_dim, num_classes, initializer=initializer, key=deviation_key)
        self.temperature = Frozen(check_scalar("temperature", temperature, minimum=1e-6))
        self.index = GaussianIndex(rank + num_classes)
        self.feature_dim = feature_dim
        self.rank = rank

    def embed(self, x: Float[Array, " features"]) -> HeteroscedasticEmbedding:
        """Return mean, factors and diagonal, divided by the temperature."""
        check_shape("x", x, (self.feature_dim,))
        mean, factors = self.mean(x), self.factors(x).reshape(self.rank, -1)
        deviation = jax.nn.softplus(self.deviation(x)) + _MIN_DEVIATION
        temperature = self.temperature.value
        return HeteroscedasticEmbedding(mean / temperature, factors / temperature, deviation / temperature)

    def heads(
        self, embedding: HeteroscedasticEmbedding, zs: Float[Array, "samples index"]
    ) -> Float[Array, "samples classes"]:
        """Return the logits at many indices by one product with the factors."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        low_rank = zs[:, : self.rank] @ embedding.factors
        return embedding.mean[None, :] + low_rank + embedding.deviation[None, :] * zs[:, self.rank :]
