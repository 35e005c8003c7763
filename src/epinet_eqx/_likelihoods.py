"""How an output of a network becomes a distribution of the target."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from ._checks import check_finite, check_labels, check_scalar


class AbstractLikelihood(eqx.Module):
    """The distribution of the target of one example, given the output of a network there."""

    @abc.abstractmethod
    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Return the log-probability (or log-density) of the target `y`, in nats."""

    @abc.abstractmethod
    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, "batch ..."]:
        """Return `y` in the form that `log_prob` takes; raise if a network with `num_outputs` cannot predict it."""


class Categorical(AbstractLikelihood):
    r"""Classification: $\hat P(y) = \mathrm{softmax}(\text{output})_y$ (Section 3)."""

    def log_prob(self, output: Float[Array, " classes"], y: Shaped[Array, ""]) -> Float[Array, ""]:
        """Return the log-probability of the class `y`."""
        # Never the logarithm of a softmax, which is minus infinity beyond a logit gap of about 100.
        return jax.nn.log_softmax(output)[y]

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Shaped[Array, " batch"]:
        """Return `y`, which must hold one class per example."""
        if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer class per example; got shape {y.shape} of {y.dtype}.")
        return check_labels("y", y.astype(jnp.int32), num_outputs)


class Gaussian(AbstractLikelihood):
    r"""Regression: $y \sim N(\text{output}, \sigma^2 I)$."""

    scale: Float[Array, ""]

    def __init__(self, scale: float | Float[Array, ""]):
        r"""Initialize with the standard deviation $\sigma$, an array so that sweeping it compiles once."""
        self.scale = check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=1e-12)

    def log_prob(self, output: Float[Array, " classes"], y: Float[Array, " classes"]) -> Float[Array, ""]:
        """Return the log-density of the target vector `y`."""
        standardized = (y - output) / self.scale
        return jnp.sum(-0.5 * jnp.square(standardized) - jnp.log(self.scale) - 0.5 * jnp.log(2 * jnp.pi))

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> Float[Array, "batch classes"]:
        """Return `y`, which must hold one finite number per example and output, with an axis of outputs."""
        scalar = num_outputs == 1 and y.ndim == 1
        if not (scalar or y.shape[1:] == (num_outputs,)) or not jnp.issubdtype(y.dtype, jnp.floating):
            raise ValueError(
                f"`y` must hold {num_outputs} floating-point outputs per example; got shape {y.shape} of {y.dtype}."
            )
        return check_finite("y", y[:, None] if scalar else y)


CATEGORICAL = Categorical()


def target_log_probs(
    likelihood: AbstractLikelihood,
    outputs: Float[Array, "samples batch classes"],
    y: Shaped[Array, "batch ..."],
) -> Float[Array, "samples batch"]:
    """Return the log-probability of each target at each sample."""
    return jax.vmap(jax.vmap(likelihood.log_prob), in_axes=(0, None))(outputs, y)
