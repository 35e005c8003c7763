"""Bootstrap weights of examples (Section 4.2)."""

import abc
import math
from statistics import NormalDist

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Scalar, check_share


def _poisson_thresholds(num_thresholds: int) -> tuple[float, ...]:
    """Return the scores, in increasing order, at which a Poisson(1) variable steps from k to k + 1."""
    cumulative = 0.0
    thresholds = []
    for k in range(num_thresholds):
        cumulative += math.exp(-1) / math.factorial(k)
        thresholds.append(NormalDist().inv_cdf(cumulative))
    return tuple(thresholds)


# The probability beyond the last one is 7e-14, out of reach for a normal score in single precision.
_POISSON_THRESHOLDS = _poisson_thresholds(15)


class AbstractBootstrap(eqx.Module):
    r"""Random weights of the examples, one per example and index, as a function of a standard normal score.

    The score of example $i$ at index $z$ is `index.score(z, key=fold_in(key, i))`, which is $c_i^\top z$ for a Gaussian
    index: nothing is stored per example.
    """

    key: eqx.AbstractVar[PRNGKeyArray]

    @abc.abstractmethod
    def weight(self, score: Float[Array, ""]) -> Float[Array, ""]:
        """Return the weight for a standard normal score."""


class BernoulliBootstrap(AbstractBootstrap):
    r"""Eq. (8): an example is omitted where $c_i^\top z \le \Phi^{-1}(p)$, that is, with probability $p$."""

    p: Float[Array, ""]
    key: PRNGKeyArray

    def __init__(self, p: Scalar, *, key: PRNGKeyArray):
        """Initialize with the probability of omission, from 0 (keep all) to below 1, and a random key."""
        self.p = check_share("p", p, below_one=True)
        self.key = key

    def weight(self, score: Float[Array, ""]) -> Float[Array, ""]:
        """Return 1, or 0 where the example is omitted."""
        return (score > jax.scipy.special.ndtri(self.p)).astype(score.dtype)


class ExponentialBootstrap(AbstractBootstrap):
    """Exponential weights of mean 1 and variance 1: the Bayesian bootstrap, up to normalization."""

    key: PRNGKeyArray

    def __init__(self, *, key: PRNGKeyArray):
        """Initialize with a random key."""
        self.key = key

    def weight(self, score: Float[Array, ""]) -> Float[Array, ""]:
        r"""Return $-\ln(1 - \Phi(s))$, the inverse distribution function at $\Phi(s)$."""
        # 1 - Phi(s) = Phi(-s), whose logarithm keeps its precision in both tails.
        return -jax.scipy.special.log_ndtr(-score)


class PoissonBootstrap(AbstractBootstrap):
    """Poisson weights of mean 1 and variance 1: the bootstrap by resampling, in the limit of many examples."""

    key: PRNGKeyArray

    def __init__(self, *, key: PRNGKeyArray):
        """Initialize with a random key."""
        self.key = key

    def weight(self, score: Float[Array, ""]) -> Float[Array, ""]:
        r"""Return the inverse distribution function of the Poisson distribution at $\Phi(s)$."""
        thresholds = jnp.asarray(_POISSON_THRESHOLDS, dtype=score.dtype)
        return jnp.sum(score > thresholds, dtype=score.dtype)
