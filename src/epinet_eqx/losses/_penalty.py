"""Penalties on parameters: sum of squares, the divergence of the ELBO (Sections 3.2 and 4.2), and shares of a prior."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import Scalar, check_scalar, check_share, is_traced, require
from .._enn import AbstractENN
from .._tree import sum_of_squares
from ..bayes import BayesByBackprop


class AbstractPenalty(eqx.Module):
    """A term of the loss that depends on the parameters and the index, but not on the example."""

    @abc.abstractmethod
    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty.

        Args:
            enn: the whole ENN.
            params: its trainable part, with `None` elsewhere: frozen parts are not penalized.
            z: the index.
        """


class L2(AbstractPenalty):
    r"""$\lambda \|\theta\|_2^2$ over the trainable parameters, as in Eq. (7) and (9)."""

    scale: Float[Array, ""]

    def __init__(self, scale: Scalar):
        r"""Initialize with $\lambda$, an array so that sweeping it compiles once."""
        self.scale = check_scalar("l2", scale, minimum=0.0)

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the scaled sum of squares of the trainable parameters."""
        return self.scale * sum_of_squares(params)


def choose_penalty(l2: Scalar, penalty: AbstractPenalty | None) -> AbstractPenalty:
    """Return `penalty`, or `L2(l2)` if it is not given."""
    if penalty is not None and not isinstance(penalty, AbstractPenalty):
        raise ValueError(f"`penalty` must be one, such as `L2(0.1)`; got {type(penalty).__name__}.")
    if penalty is None:
        return L2(l2)
    if not (isinstance(l2, float | int) and l2 == 0):
        raise ValueError(f"`l2` must be left at 0 where a `penalty` is given; got {l2}.")
    return penalty


def _positive(name: str, value: float | int | Float[Array, ""]) -> Float[Array, ""]:
    """Return `value` as an array; it must be a positive standard deviation or count."""
    array = jnp.asarray(value, dtype=float)
    found = "" if is_traced(array) else f"; got {float(array)}"
    return require(array, ~(jnp.isfinite(array) & (array > 0)), f"`{name}` must be finite and positive{found}.")


def _coefficient(num_examples: int | Float[Array, ""], scale: Scalar) -> Float[Array, ""]:
    """Return the factor of the divergence, since the data loss is a mean over examples."""
    value = check_scalar("scale", scale, minimum=0.0)
    return value / _positive("num_examples", num_examples)


def _mean_field(enn: AbstractENN) -> BayesByBackprop:
    """Return `enn`, which must have a distribution over parameters."""
    if not isinstance(enn, BayesByBackprop):
        raise TypeError(f"`enn` must be a `BayesByBackprop` for a divergence penalty; got {type(enn).__name__}.")
    return enn


class GaussianKL(AbstractPenalty):
    r"""$\mathrm{KL}(q \,\|\, N(0, \sigma_1^2 I))$ in closed form, over the number of examples: the ELBO's penalty.

    With the log loss of Eq. (7) at $\lambda = 0$, the sum is minus the evidence lower bound per example.
    """

    sigma_1: Float[Array, ""]
    coefficient: Float[Array, ""]

    def __init__(self, num_examples: int | Float[Array, ""], sigma_1: Scalar = 1.0, *, scale: Scalar = 1.0):
        r"""Initialize the penalty; its scalars are arrays, so that sweeping them compiles once.

        Args:
            num_examples: size of the training set.
            sigma_1: $\sigma_1$, the standard deviation of the prior.
            scale: an additional factor.
        """
        self.sigma_1 = _positive("sigma_1", sigma_1)
        self.coefficient = _coefficient(num_examples, scale)

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the scaled divergence, the same at every index."""
        q = _mean_field(enn)
        ratio = q.sigma / self.sigma_1
        terms = jnp.square(ratio) + jnp.square(q.mean / self.sigma_1) - 1 - 2 * jnp.log(ratio)
        return self.coefficient * jnp.sum(terms) / 2


class ScaleMixtureKL(AbstractPenalty):
    r"""The divergence from $\pi N(0, \sigma_1^2) + (1 - \pi) N(0, \sigma_2^2)$, sampled (Blundell et al., 2015).

    There is no closed form, so each index $z$ gives the estimate $\ln q(\hat\theta) - \ln p(\hat\theta)$ at its own
    parameters $\hat\theta = \mu + \sigma \odot z$, over the number of examples.
    """

    sigma_1: Float[Array, ""]
    sigma_2: Float[Array, ""]
    mixture_weight: Float[Array, ""]
    coefficient: Float[Array, ""]

    def __init__(
        self,
        num_examples: int | Float[Array, ""],
        sigma_1: Scalar = 1.0,
        sigma_2: Scalar = 0.75,
        mixture_weight: Scalar = 0.5,
        *,
        scale: Scalar = 1.0,
    ):
        r"""Initialize the penalty; its scalars are arrays, so that sweeping them compiles once.

        Args:
            num_examples: size of the training set.
            sigma_1: $\sigma_1$, the standard deviation of the first component of the prior.
            sigma_2: $\sigma_2$, that of the second one.
            mixture_weight: $\pi$, the weight of the first component.
            scale: an additional factor.
        """
        self.sigma_1 = _positive("sigma_1", sigma_1)
        self.sigma_2 = _positive("sigma_2", sigma_2)
        self.mixture_weight = check_share("mixture_weight", mixture_weight)
        self.coefficient = _coefficient(num_examples, scale)

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the scaled estimate at one index."""
        q = _mean_field(enn)
        theta = q.parameters_at(z)
        log_prior = jnp.logaddexp(
            jnp.log(self.mixture_weight) + norm.logpdf(theta / self.sigma_1) - jnp.log(self.sigma_1),
            jnp.log1p(-self.mixture_weight) + norm.logpdf(theta / self.sigma_2) - jnp.log(self.sigma_2),
        )
        # The density of theta itself, by its noise: (theta - mean) / sigma would lose what softplus rounds away.
        log_posterior = norm.logpdf(z) - jnp.log(q.sigma)
        return self.coefficient * jnp.sum(log_posterior - log_prior)


class PriorShare(AbstractPenalty):
    """A penalty divided by the number of observations, since the rest of the loss is a mean over them."""

    penalty: AbstractPenalty
    num_observations: Float[Array, ""]

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the penalty of one observation."""
        return self.penalty(enn, params, z) / self.num_observations


class AnchoredL2(AbstractPenalty):
    r"""$\lambda \|\theta - \theta_0\|_2^2$: pulls toward the parameters before training instead of zero.

    An ENN whose initial parameters are a sample of the prior for each index then stays one where there are no data.
    """

    scale: Float[Array, ""]
    anchor: PyTree

    def __init__(self, scale: Scalar, anchor: PyTree):
        r"""Initialize with $\lambda$, and $\theta_0$, the trainable part of an ENN with `None` elsewhere."""
        self.scale = check_scalar("l2", scale, minimum=0.0)
        self.anchor = anchor

    def __call__(self, enn: AbstractENN, params: PyTree, z: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the scaled squared distance of the trainable parameters to the anchor."""
        return self.scale * sum_of_squares(jax.tree.map(jnp.subtract, params, jax.lax.stop_gradient(self.anchor)))
