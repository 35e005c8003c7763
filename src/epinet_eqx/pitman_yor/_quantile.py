r"""Positive $\alpha$-stable noise from one Gaussian variable: the quantile function of its logarithm, as a polynomial.

Kanter's formula needs two Gaussian variables, three sines, four logarithms and two error functions per element. The
quantile function gives the same distribution from one: half the index, half the product with the field, and a
polynomial of low degree (`benchmarks/bench_pitman_yor.py`). It increases in the variable, so a field that is high
favors its class.
"""

import functools as ft
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from numpy.polynomial import Chebyshev

from .._checks import as_known_real
from ._urn import MIN_ALPHA, check_alpha

# A Gaussian exceeds this with a probability of 1e-15.
_REACH = 8.0
# Predictions are off by less than 1e-6 up to alpha = 0.8, and by at most 2e-5 between that and 1.
_DEGREE, _ALPHA_DEGREE = 39, 48
# Coefficients of a block, see `_block_basis`.
_BLOCK = 4
# Where the noise is tabulated alpha ends just below 1, where it is exactly 0.
_MAX_TABULATED = 1 - 1e-6
_NUM_POINTS, _NUM_BISECTIONS = 800, 28


def _tails(g: np.ndarray) -> np.ndarray:
    r"""Return $\Phi(-|g|)$."""
    return np.array([0.5 * math.erfc(abs(value) * 2**-0.5) for value in g])


def _log_sinc(angle: np.ndarray, rest: np.ndarray) -> np.ndarray:
    r"""Return $\log(\sin(x) / x)$ of an angle, given its difference from $\pi$."""
    series = -np.square(angle) / 6 - angle**4 / 180
    return np.where(angle < 0.03, series, np.log(np.sin(np.minimum(angle, rest)) / angle))


def _quantiles(alphas: np.ndarray, gs: np.ndarray) -> np.ndarray:
    r"""Return $\alpha$ times the quantile of $\log S$ at $\Phi(g)$, a row for each alpha, by bisection.

    By Kanter's formula $S < s$ where $W > a(U) s^{-\alpha / (1 - \alpha)}$, so its probability is an integral over the
    angle $U$, taken as a function of a Gaussian variable. Each half of the points compares its own, smaller tail.
    """
    grid, step = np.linspace(-9, 9, _NUM_POINTS, retstep=True)
    weights = step * np.exp(-np.square(grid) / 2) / math.sqrt(2 * math.pi)
    small = _tails(grid)
    angle, rest = (np.pi * np.where(side, 1 - small, small) for side in (grid > 0, grid <= 0))
    alpha = alphas[:, None]
    other = 1 - alpha
    power = alpha * (np.log(alpha) + _log_sinc(alpha * angle, rest + other * angle)) - _log_sinc(angle, rest)
    power += other * (np.log(other) + _log_sinc(other * angle, rest + alpha * angle))
    found = np.empty((len(alphas), len(gs)))
    for is_lower in (False, True):
        side = (gs <= 0) == is_lower
        tails = _tails(gs[side])
        low, high = np.full((len(alphas), len(tails)), -8.0), np.full((len(alphas), len(tails)), 45.0)
        for _ in range(_NUM_BISECTIONS):
            middle = (low + high) / 2
            rates = np.exp(np.clip((power[:, None, :] - middle[:, :, None]) / other[:, :, None], -700, 50))
            is_below = np.exp(-rates) @ weights < tails if is_lower else -np.expm1(-rates) @ weights > tails
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        found[:, side] = (low + high) / 2
    return found


def _transform(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a Chebyshev series in [-1, 1], and the matrix from values there to coefficients."""
    angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    matrix = 2 / (degree + 1) * np.cos(np.outer(np.arange(degree + 1), angles))
    matrix[0] /= 2
    return np.cos(angles), matrix


def _block_basis(degree: int) -> np.ndarray:
    """Return the matrix from the coefficients of a Chebyshev series to those of its blocks.

    The series is a sum of polynomials of degree 3, as powers, times Chebyshev polynomials of degree 0, 4, 8, ...: it
    costs little more than powers alone, whose coefficients of alternating sign would cancel in single precision.
    """
    products = []
    for number in range(degree + 1):
        block, power = divmod(number, _BLOCK)
        product = Chebyshev.basis(_BLOCK * block) * Chebyshev([0.0, 1.0]) ** power
        products.append(np.pad(product.coef, (0, degree + 1 - len(product.coef))))
    return np.linalg.inv(np.stack(products, axis=1))


@ft.cache
def _table() -> np.ndarray:
    """Return the coefficients of the quantiles: a row for each degree in alpha's variable, a column for each in g."""
    (points, matrix), (alpha_points, alpha_matrix) = _transform(_DEGREE), _transform(_ALPHA_DEGREE)
    alphas = np.minimum(1 - (1 - MIN_ALPHA) * np.square((1 - alpha_points) / 2), _MAX_TABULATED)
    return alpha_matrix @ _quantiles(alphas, _REACH * points) @ (_block_basis(_DEGREE) @ matrix).T


def _clenshaw(terms: Sequence[Array], t: Float[Array, "*batch"]) -> Float[Array, "..."]:
    """Return a sum of terms times Chebyshev polynomials of `t`; unrolled, so that it is one pass."""
    first, second = jnp.zeros_like(t), jnp.zeros_like(t)
    for term in reversed(terms[1:]):
        first, second = 2 * t * first + (term - second), first
    return t * first + (terms[0] - second)


def noise_series(alpha: Float[Array, ""]) -> Float[Array, " degrees"]:
    """Return the coefficients of the noise at one `alpha`, in [0.001, 1]."""
    is_one = alpha > _MAX_TABULATED
    below = jnp.where(is_one, 0.5, alpha)
    # The noise bends sharply near 1, where this variable spreads it out.
    t = 1 - 2 * jnp.sqrt((1 - below) / (1 - MIN_ALPHA))
    series = _clenshaw(list(jnp.asarray(_table(), dtype=alpha.dtype)), jnp.clip(t, -1, 1)) / below
    return jnp.where(is_one, 0.0, series)


def series_noise(series: Float[Array, " degrees"], g: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Return what `log_stable_quantile` returns, from the coefficients of an `alpha`."""
    t = jnp.clip(g / _REACH, -1, 1)
    blocks = []
    for start in range(0, series.shape[0], _BLOCK):
        block = jnp.broadcast_to(series[start + _BLOCK - 1], t.shape)
        for number in range(start + _BLOCK - 2, start - 1, -1):
            block = block * t + series[number]
        blocks.append(block)
    square = 2 * t * t - 1
    return _clenshaw(blocks, 2 * square * square - 1)


@jax.jit
def _quantile(alpha: Float[Array, ""], g: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    return series_noise(noise_series(alpha), g)


def log_stable_quantile(alpha: float | Float[Array, ""], g: Float[ArrayLike, "*batch"]) -> Float[Array, "*batch"]:
    r"""Return $\log S$ with $E\, e^{-tS} = e^{-t^\alpha}$ for standard normal `g`: the quantile at $\Phi(g)$.

    The noise of the sampled head: `log_stable` in distribution, from one variable.

    Args:
        alpha: in [0.001, 1].
        g: Gaussian variables; beyond 8 deviations they count as 8.
    """
    return _quantile(check_alpha(alpha), as_known_real("g", g))
