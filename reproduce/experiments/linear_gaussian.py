r"""The linear-Gaussian epinet of Section 4.3, the exact posterior, and the minimizer of Eq. (9) in closed form.

With $A = \eta + \sigma_0 P_0$ the epinet is $f(x, z) = (\zeta + A^\top z)^\top x$. For $z \sim N(0, I)$ the expectation
of Eq. (9), summed over the data, with $\lambda = \sigma^2 / (N \sigma_0^2)$, is
$$\sum_i (\zeta^\top x_i - y_i)^2 + \sum_i \|A x_i - \sigma c_i\|^2
+ \tfrac{\sigma^2}{\sigma_0^2} \left(\|\zeta\|^2 + \|A - \sigma_0 P_0\|^2\right),$$
which is smallest, with $\Sigma = (X^\top X / \sigma^2 + I / \sigma_0^2)^{-1}$, at
$$\hat\zeta = \tfrac{1}{\sigma^2} \Sigma X^\top y, \qquad
\hat A = \left(\tfrac{1}{\sigma} \sum_i c_i x_i^\top + \tfrac{1}{\sigma_0} P_0\right) \Sigma, \qquad
\hat\eta = \hat A - \sigma_0 P_0.$$

How far is the covariance $\hat A^\top \hat A$ from $\Sigma$? Let $u_k$ be the $c_i$ and the columns of $P_0$, and $s_k$
the vectors $\Sigma x_i / \sigma$ and $\Sigma e_d / \sigma_0$ that go with them, so that $\sum_k s_k s_k^\top = \Sigma$.
Then $\hat A^\top \hat A - \Sigma = \sum_{k \ne l} (u_k^\top u_l) s_k s_l^\top$, and the products $u_k^\top u_l$ of
independent unit vectors have mean zero, variance $1 / D_Z$, and are uncorrelated. So for every $D_Z$, large or small,
$$E \|\hat A^\top \hat A - \Sigma\|_F^2 = \tfrac{1}{D_Z}
\left[(\mathrm{tr}\,\Sigma)^2 + \|\Sigma\|_F^2 - 2 \sum_k \|s_k\|^4\right].$$
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Float64, PRNGKeyArray

from epinet_eqx import AbstractENN, named_keys
from epinet_eqx.combinators import Prior
from epinet_eqx.epinet import Epinet, NetworkEnsemble, Reads
from epinet_eqx.indices import GaussianIndex
from epinet_eqx.losses import SquaredLoss
from epinet_eqx.networks import AbstractNetwork

from .generators import numpy_generator


class LinearNetwork(AbstractNetwork):
    r"""The base network $\theta^\top x$, without a bias; its features are the input."""

    weight: Float[Array, " in"]

    @property
    def feature_dim(self) -> int:
        """The size of the input."""
        return self.weight.shape[-1]

    def with_features(self, x: Float[Array, " in"]) -> tuple[Float[Array, " classes"], Float[Array, " features"]]:
        """Return the one output, and the input."""
        return (self.weight @ x)[None], x


class Problem(NamedTuple):
    r"""Data of a linear-Gaussian model, and its standard deviations: $\sigma$ of the noise, $\sigma_0$ of the prior."""

    x: Float64[np.ndarray, "batch in"]
    y: Float64[np.ndarray, " batch"]
    noise_scale: float
    prior_scale: float

    @property
    def l2(self) -> float:
        r"""The coefficient $\lambda$ of Theorem 4."""
        return self.noise_scale**2 / (len(self.y) * self.prior_scale**2)


def draw_problem(num_data: int, in_dim: int, *, noise_scale: float, prior_scale: float, key: PRNGKeyArray) -> Problem:
    """Draw standard normal inputs, a function from the prior, and its noisy values."""
    generator = numpy_generator(key)
    x = generator.standard_normal((num_data, in_dim))
    function = prior_scale * generator.standard_normal(in_dim)
    return Problem(x, x @ function + noise_scale * generator.standard_normal(num_data), noise_scale, prior_scale)


def make_epinet(in_dim: int, index_dim: int, *, prior_scale: float, key: PRNGKeyArray) -> Epinet:
    r"""Return a linear-Gaussian epinet with random parameters; each column of $P_0$ is uniform on the unit sphere."""
    values_key, learnable_key, prior_key = named_keys(key, "values", "learnable", "prior")
    # All at once and not member by member: XLA compiles one large draw faster than many small ones.
    values = jr.normal(values_key, (1 + 2 * index_dim, in_dim))
    zeta, eta, columns = jnp.split(values, [1, 1 + index_dim])

    def ensemble(weight: Float[Array, "index in"], *, key: PRNGKeyArray) -> Reads:
        # Member d holds row d of the matrix.
        term = NetworkEnsemble(lambda _: LinearNetwork(jnp.zeros(in_dim)), index_dim, key=key)
        return Reads(eqx.tree_at(lambda term: term.members.weight, term, weight), "input")

    columns = columns / jnp.linalg.norm(columns, axis=0, keepdims=True)
    prior = Prior(ensemble(columns, key=prior_key), prior_scale)
    return Epinet(LinearNetwork(zeta[0]), ensemble(eta, key=learnable_key), (prior,), GaussianIndex(index_dim))


def make_loss(problem: Problem, *, key: PRNGKeyArray) -> SquaredLoss:
    """Return the loss of Eq. (9) with the penalty of Theorem 4."""
    return SquaredLoss(l2=problem.l2, noise_scale=problem.noise_scale, key=key)


def directions(loss: SquaredLoss, index: GaussianIndex, num_data: int) -> Float[Array, "batch index"]:
    """Return the vectors `c_i` of a loss: the gradients of the scores that it perturbs the targets with."""

    def gradient(i: Array) -> Float[Array, " index"]:
        return jax.grad(lambda z: loss.score(index, z, i, 1)[0])(jnp.zeros(index.shape))

    return jax.lax.map(gradient, jnp.arange(num_data))


def _weight(term: AbstractENN) -> Float[Array, "index in"]:
    """Return the matrix of a linear term."""
    assert isinstance(term, Reads) and isinstance(term.enn, NetworkEnsemble)
    assert isinstance(term.enn.members, LinearNetwork)
    return term.enn.members.weight


def prior_matrix(enn: Epinet) -> Float[Array, "index in"]:
    """Return the matrix `P_0` of an epinet."""
    return _weight(enn.priors[0].enn.content)


def parameters(enn: Epinet) -> Float64[np.ndarray, "*seeds rows in"]:
    r"""Return all parameters of an epinet, or of a stack of them: $\zeta$ in the first row, $\eta$ in the others."""
    assert isinstance(enn.base, LinearNetwork)
    return as_rows(np.asarray(enn.base.weight, np.float64), np.asarray(_weight(enn.learnable), np.float64))


def as_rows(zeta: Float64[np.ndarray, "..."], eta: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    r"""Return $\zeta$ above $\eta$; one $\zeta$ may go with many $\eta$."""
    first = np.broadcast_to(zeta, (*eta.shape[:-2], eta.shape[-1]))
    return np.concatenate([first[..., None, :], eta], axis=-2)


def with_parameters(enn: Epinet, rows: Float[Array, "rows in"]) -> Epinet:
    r"""Return the epinet with these $\zeta$ and $\eta$."""
    return eqx.tree_at(
        lambda enn: (enn.base.weight, enn.learnable.enn.members.weight),
        enn,
        (rows[0], rows[1:]),
    )


def posterior(problem: Problem) -> tuple[Float64[np.ndarray, " in"], Float64[np.ndarray, "in in"]]:
    r"""Return mean and covariance of $\nu_*$ given the data, by least squares on the data and the prior together."""
    size = problem.x.shape[1]
    stacked = np.concatenate([problem.x / problem.noise_scale, np.eye(size) / problem.prior_scale])
    inverse = np.linalg.pinv(stacked)
    return inverse @ np.concatenate([problem.y / problem.noise_scale, np.zeros(size)]), inverse @ inverse.T


def minimizer(
    problem: Problem, c: Float64[np.ndarray, "*seeds batch index"], p_0: Float64[np.ndarray, "*seeds index in"]
) -> tuple[Float64[np.ndarray, " in"], Float64[np.ndarray, "*seeds index in"]]:
    r"""Return $\hat\zeta$ and $\hat\eta$ in closed form."""
    x, sigma, sigma_0 = problem.x, problem.noise_scale, problem.prior_scale
    covariance = np.linalg.inv(x.T @ x / sigma**2 + np.eye(x.shape[1]) / sigma_0**2)
    zeta = covariance @ x.T @ problem.y / sigma**2
    a = (np.tensordot(c, x, axes=(-2, 0)) / sigma + p_0 / sigma_0) @ covariance
    # Paper: a - p_0, and the epinet's covariance without the factor too; here: a - sigma_0 * p_0 because the prior
    # function is sigma_0 z^T P_0 x, and because only this is the minimizer unless sigma_0 is one.
    return zeta, a - sigma_0 * p_0


def printed_minimizer(
    problem: Problem, c: Float64[np.ndarray, "*seeds batch index"], p_0: Float64[np.ndarray, "*seeds index in"]
) -> tuple[Float64[np.ndarray, " in"], Float64[np.ndarray, "*seeds index in"]]:
    r"""Return $\hat\zeta$ and $\hat\eta$ as Appendix D prints them."""
    zeta, eta = minimizer(problem, c, p_0)
    return zeta, eta + (problem.prior_scale - 1) * p_0


def function_covariance(
    problem: Problem, eta: Float64[np.ndarray, "*seeds index in"], p_0: Float64[np.ndarray, "*seeds index in"]
) -> Float64[np.ndarray, "*seeds in in"]:
    r"""Return $A^\top A$, the covariance of $\zeta + A^\top z$."""
    a = eta + problem.prior_scale * p_0
    return np.swapaxes(a, -1, -2) @ a


def expected_covariance_error(problem: Problem) -> float:
    r"""Return the root of $D_Z \, E \|\hat A^\top \hat A - \Sigma\|_F^2$ over the norm of $\Sigma$, for every $D_Z$."""
    _, covariance = posterior(problem)
    vectors = np.concatenate([problem.x / problem.noise_scale, np.eye(len(covariance)) / problem.prior_scale])
    fourth = np.sum(np.sum(np.square(vectors @ covariance), axis=1) ** 2)
    norm = np.sum(covariance**2)
    return float(np.sqrt((np.trace(covariance) ** 2 + norm - 2 * fourth) / norm))
