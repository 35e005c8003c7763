r"""Positive $\alpha$-stable noise: Kanter's formula, and for many indices at one `alpha` the same by polynomials.

The logarithm of the formula is a sum of a function of the one Gaussian variable and a function of the other. Both are
smooth, so each is a Chebyshev series, and an element costs some eighty multiplications instead of three sines, four
logarithms and two error functions (`benchmarks/bench_pitman_yor.py`).
"""

import functools as ft
import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jaxtyping import Array, Float

# A Gaussian exceeds this with a probability below 1e-23; single precision holds that, and the gradients there.
_MAX_DEVIATION = 10.0
# Angles below which the logarithm of the sine over the angle is taken from its series.
_SMALL_ANGLE = 0.03


def _tail(g: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return $\Phi(-|g|)$, the smaller of the two tails, with full relative precision."""
    return 0.5 * erfc(jnp.minimum(jnp.abs(g), _MAX_DEVIATION) * 2**-0.5)


def _log_sinc(angle: Float[Array, "..."], rest: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return $\log(\sin(x) / x)$ of an angle in $(0, \pi]$, given what it lacks to $\pi$ with full precision."""
    is_small = angle < _SMALL_ANGLE
    square = jnp.square(jnp.where(is_small, angle, 0.0))
    series = -square / 6 - jnp.square(square) / 180
    large = jnp.where(is_small, 1.0, angle)
    return jnp.where(is_small, series, jnp.log(jnp.sin(jnp.minimum(large, rest)) / large))


def log_stable(
    alpha: Float[Array, ""], g1: Float[Array, "*batch"], g2: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    r"""Return $\log S$ with $E\, e^{-tS} = e^{-t^\alpha}$ for independent standard normal `g1` and `g2`.

    Kanter's formula with $U = \pi \Phi(g_1)$ and $W = -\log \Phi(g_2)$:

    $$S = \frac{\sin \alpha U}{(\sin U)^{1/\alpha}} \left(\frac{\sin((1 - \alpha) U)}{W}\right)^{(1 - \alpha)/\alpha}.$$

    Each sine is divided by its argument, so that the powers of $U$ cancel before they are multiplied by $1/\alpha$, and
    is taken of the smaller of an angle and what that angle lacks to $\pi$. At $\alpha = 1$ the result is exactly 0.

    Args:
        alpha: in [0.001, 1].
        g1: Gaussian variables; beyond 10 deviations they count as 10.
        g2: likewise.
    """
    small = _tail(g1)
    angle = jnp.pi * jnp.where(g1 > 0, 1 - small, small)
    rest = jnp.pi * jnp.where(g1 > 0, small, 1 - small)
    other = 1 - alpha
    tail = _tail(g2)
    exponential = jnp.where(g2 > 0, -jnp.log1p(-tail), -jnp.log(tail))
    # The logarithm of 1 - alpha is multiplied by 1 - alpha: at alpha = 1 any finite value will do.
    log_other = jnp.log(jnp.maximum(other, jnp.finfo(other.dtype).eps))
    power = log_other + _log_sinc(other * angle, rest + alpha * angle) - jnp.log(exponential)
    first = jnp.log(alpha) + _log_sinc(alpha * angle, rest + other * angle)
    return first - (_log_sinc(angle, rest) - other * power) / alpha


# A Gaussian exceeds this with a probability of 1e-15.
_REACH = 8.0
# At these degrees, `alpha` times the error of the result is about 1e-3 at 0.001, below 3e-4 at 0.02, 2e-5 from 0.2.
_ANGLE_DEGREE, _EXPONENTIAL_DEGREE = 48, 28
# Where the exponential variable -log(Phi(g)) is one, so that its logarithm drops out.
_NEUTRAL = -0.33747496376420244


@ft.cache
def _transform(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a Chebyshev series, and the matrix from values there to coefficients."""
    angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    matrix = 2 / (degree + 1) * np.cos(np.outer(np.arange(degree + 1), angles))
    matrix[0] /= 2
    return _REACH * np.cos(angles), matrix


@ft.cache
def _log_exponential() -> np.ndarray:
    """Return the series of the logarithm of the exponential variable, which is the same for every `alpha`."""
    points, matrix = _transform(_EXPONENTIAL_DEGREE)
    tails = [0.5 * math.erfc(abs(g) / math.sqrt(2)) for g in points]
    values = [math.log(-math.log1p(-tail) if g > 0 else -math.log(tail)) for g, tail in zip(points, tails, strict=True)]
    return matrix @ np.array(values)


def noise_series(alpha: Float[Array, ""]) -> Float[Array, " coefficients"]:
    """Return the coefficients of both series at one `alpha`, in [0.001, 1]."""
    points, matrix = _transform(_ANGLE_DEGREE)
    points = jnp.asarray(points, dtype=alpha.dtype)
    values = log_stable(alpha, points, jnp.full_like(points, _NEUTRAL))
    angle = jnp.matmul(jnp.asarray(matrix, dtype=alpha.dtype), values, precision="highest")
    return jnp.concatenate([angle, -(1 - alpha) / alpha * jnp.asarray(_log_exponential(), dtype=alpha.dtype)])


def _evaluate(coefficients: Float[Array, " degrees"], t: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Return a series at points in [-1, 1], by Clenshaw's recursion; unrolled, so that it is one pass."""
    first, second = jnp.zeros_like(t), jnp.zeros_like(t)
    for number in range(coefficients.shape[0] - 1, 0, -1):
        first, second = 2 * t * first - second + coefficients[number], first
    return t * first - second + coefficients[0]


def series_noise(
    series: Float[Array, " coefficients"], g1: Float[Array, "*batch"], g2: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Return what `log_stable` returns, from the coefficients of an `alpha`.

    Args:
        series: the coefficients, as `noise_series` returns them.
        g1: Gaussian variables; beyond 8 deviations they count as 8.
        g2: likewise.
    """
    angle, exponential = jnp.split(series, [_ANGLE_DEGREE + 1])
    return _evaluate(angle, jnp.clip(g1 / _REACH, -1, 1)) + _evaluate(exponential, jnp.clip(g2 / _REACH, -1, 1))
