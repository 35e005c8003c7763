r"""Positive $\alpha$-stable noise by Kanter's formula, from two Gaussian variables."""

import jax.numpy as jnp
from jax.scipy.special import erfc
from jaxtyping import Array, ArrayLike, Float

from .._checks import as_known_real
from ._urn import known_alpha

# A Gaussian exceeds this with a probability below 1e-23; single precision holds that, and the gradients there.
_MAX_DEVIATION = 10.0
# Angles below which the logarithm of the sine over the angle is taken from its series.
_SMALL_ANGLE = 0.03


def _tail(g: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return $\Phi(-|g|)$, the smaller of the two tails, with full relative precision."""
    return 0.5 * erfc(jnp.minimum(jnp.abs(g), _MAX_DEVIATION) * 2**-0.5)


def _log_sinc(angle: Float[Array, "..."], rest: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return $\log(\sin(x) / x)$ of an angle in $(0, \pi]$, given its difference from $\pi$ with full precision."""
    is_small = angle < _SMALL_ANGLE
    square = jnp.square(jnp.where(is_small, angle, 0.0))
    series = -square / 6 - jnp.square(square) / 180
    large = jnp.where(is_small, 1.0, angle)
    return jnp.where(is_small, series, jnp.log(jnp.sin(jnp.minimum(large, rest)) / large))


def log_stable(
    alpha: float | Float[Array, ""], g1: Float[ArrayLike, "*batch"], g2: Float[ArrayLike, "*batch"]
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
    alpha, g1, g2 = known_alpha(alpha), as_known_real("g1", g1), as_known_real("g2", g2)
    if g1.shape != g2.shape and () not in (g1.shape, g2.shape):
        raise ValueError(f"`g2` must have the shape of `g1`, {g1.shape}; got {g2.shape}.")
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
