"""A convolution that a CPU also runs and differentiates fast inside a compiled loop.

XLA hands a convolution to the fast routine of a CPU if images have their channels last and kernels are stored as
`(height, width, in, out)`. It brings others into that form, but not inside a loop, where they and above all the usual
derivatives are about fifty times slower (https://github.com/jax-ml/jax/issues/12868). So the form is kept here at all
times, and on a CPU the derivatives are written in it too.
"""

import functools as ft
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_FORM = ("NHWC", "HWIO", "NHWC")
_Pads: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


def _forward(
    x: Float[Array, "batch height width in"], weight: Float[Array, "kernel kernel in out"], stride: int, pads: _Pads
) -> Float[Array, "batch height_out width_out out"]:
    """Return the convolution, with the usual derivatives."""
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), pads, dimension_numbers=_FORM)


def _backward(
    x: Float[Array, "batch height width in"],
    weight: Float[Array, "kernel kernel in out"],
    change: Float[Array, "batch height_out width_out out"],
    stride: int,
    pads: _Pads,
) -> tuple[Float[Array, "batch height width in"], Float[Array, "kernel kernel in out"]]:
    """Return the derivatives with respect to image and kernel, as convolutions in the fast form."""
    kernel = weight.shape[0]
    # The pixels between the first and the last window's first pixel.
    spans = [(size - 1) * stride + 1 for size in change.shape[1:3]]
    around = [
        (kernel - 1 - before, size + before - span)
        for (before, _), size, span in zip(pads, x.shape[1:3], spans, strict=True)
    ]
    flipped = jnp.transpose(jnp.flip(weight, (0, 1)), (0, 1, 3, 2))
    to_image = jax.lax.conv_general_dilated(
        change, flipped, (1, 1), around, lhs_dilation=(stride, stride), dimension_numbers=_FORM
    )
    seen = jnp.pad(x, ((0, 0), *pads, (0, 0)))[:, : spans[0] + kernel - 1, : spans[1] + kernel - 1]
    # The batch takes the part of the channels that are summed over.
    to_kernel = jax.lax.conv_general_dilated(
        jnp.transpose(seen, (3, 1, 2, 0)),
        jnp.transpose(change, (1, 2, 0, 3)),
        (1, 1),
        "VALID",
        rhs_dilation=(stride, stride),
        dimension_numbers=_FORM,
    )
    return to_image, jnp.transpose(to_kernel, (1, 2, 0, 3))


@ft.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(
    x: Float[Array, "batch height width in"], weight: Float[Array, "kernel kernel in out"], stride: int, pads: _Pads
) -> Float[Array, "batch height_out width_out out"]:
    """Return the convolution, with derivatives that suit the platform."""
    return _forward(x, weight, stride, pads)


def _convolve_forward(x: Array, weight: Array, stride: int, pads: _Pads) -> tuple[Array, tuple[Array, Array]]:
    """Return the convolution and what its derivatives need."""
    return _forward(x, weight, stride, pads), (x, weight)


def _convolve_backward(stride: int, pads: _Pads, saved: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    """Return the derivatives."""

    def usual(x: Array, weight: Array, change: Array) -> tuple[Array, Array]:
        return jax.vjp(lambda x, weight: _forward(x, weight, stride, pads), x, weight)[1](change)

    return jax.lax.platform_dependent(
        *saved, change, cpu=ft.partial(_backward, stride=stride, pads=pads), default=usual
    )


_convolve.defvjp(_convolve_forward, _convolve_backward)


def convolve(
    x: Float[Array, "height width in"], weight: Float[Array, "kernel kernel in out"], stride: int, *, same: bool
) -> Float[Array, "height_out width_out out"]:
    """Return the convolution of one image, whose derivatives are by reverse mode only.

    Args:
        x: the image.
        weight: the kernels.
        stride: the stride along both axes.
        same: whether to pad as TensorFlow's "SAME" does, or by half a kernel on every side.
    """
    kernel = weight.shape[0]
    pads = ((kernel // 2, kernel // 2),) * 2
    if same:
        pads = jax.lax.padtype_to_pads(x.shape[:2], (kernel, kernel), (stride, stride), "SAME")
    (above, below), (left, right) = pads
    return _convolve(x[None], weight, stride, ((above, below), (left, right)))[0]  # pyright: ignore[reportIndexIssue]
