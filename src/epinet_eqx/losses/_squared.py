"""The squared loss of regression (Section 4.3)."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from .._checks import check_finite, check_scalar, is_traced
from ._bootstrap import AbstractBootstrap
from ._loss import AbstractLoss
from ._penalty import AbstractPenalty, choose_penalty


class SquaredLoss(AbstractLoss):
    r"""Eq. (9): $(f_\theta(x_i, z) - y_i - \sigma c_i^\top z)^2 + \lambda \|\theta\|_2^2$, summed over outputs.

    Without noise it is the plain squared loss. Each output of an example has a $c$ of its own.
    """

    noise_scale: Float[Array, ""]
    penalty: AbstractPenalty
    bootstrap: AbstractBootstrap | None
    noise_key: PRNGKeyArray | None

    def __init__(
        self,
        l2: float | Float[Array, ""] = 0.0,
        noise_scale: float | Float[Array, ""] = 0.0,
        bootstrap: AbstractBootstrap | None = None,
        penalty: AbstractPenalty | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ):
        r"""Initialize the loss; its scalars are arrays, so that sweeping them compiles once.

        Args:
            l2: $\lambda$, for the sum of squares over trainable parameters.
            noise_scale: $\sigma$, the standard deviation of the perturbation of the targets.
            bootstrap: weights of the examples, beside or instead of the perturbation.
            penalty: another penalty in place of the sum of squares.
            key: random key of the perturbation; needed with a `noise_scale` above zero.
        """
        value = check_scalar("noise_scale", jnp.asarray(noise_scale, dtype=float), minimum=0.0)
        if key is None and (is_traced(value) or float(value) > 0):
            found = "" if is_traced(value) else f", {float(value)}"
            raise ValueError(f"`key` must be given with a `noise_scale` above zero{found}; got None.")
        self.noise_scale = value
        self.penalty = choose_penalty(l2, penalty)
        self.bootstrap = bootstrap
        self.noise_key = key

    def data_loss(
        self, output: Float[Array, " classes"], y: Float[Array, "..."], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the squared distance of the output to the perturbed target."""
        allowed = (output.shape, ()) if output.shape == (1,) else (output.shape,)
        if y.shape not in allowed or not jnp.issubdtype(y.dtype, jnp.floating):
            raise ValueError(
                f"`y` must hold {output.shape[0]} floating-point outputs per example; got shape {y.shape} of {y.dtype} "
                "for one."
            )
        target = y.reshape(output.shape)
        return jnp.sum(jnp.square(output - target - self.noise_scale * score))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless `y` holds one finite number per example and output."""
        allowed = [(num_outputs,)] + ([()] if num_outputs == 1 else [])
        if y.shape[1:] not in allowed or not jnp.issubdtype(y.dtype, jnp.floating):
            raise ValueError(
                f"`y` must hold {num_outputs} floating-point outputs per example; got shape {y.shape} of {y.dtype}."
            )
        check_finite("y", y)
