"""The regularized log loss of classification (Section 4.2)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from .._checks import check_labels, is_traced, require
from ._bootstrap import AbstractBootstrap
from ._loss import AbstractLoss
from ._penalty import AbstractPenalty, choose_penalty


class CrossEntropy(AbstractLoss):
    r"""Eq. (7): $-\ln \mathrm{softmax}(f_\theta(x_i, z))_{y_i} + \lambda \|\theta\|_2^2$; with a bootstrap, Eq. (8).

    The weight of a bootstrap multiplies the penalty too, as Eq. (8) is written.
    """

    label_smoothing: Float[Array, ""]
    penalty: AbstractPenalty
    bootstrap: AbstractBootstrap | None
    noise_key: PRNGKeyArray | None

    def __init__(
        self,
        l2: float | Float[Array, ""] = 0.0,
        label_smoothing: float | Float[Array, ""] = 0.0,
        bootstrap: AbstractBootstrap | None = None,
        penalty: AbstractPenalty | None = None,
    ):
        r"""Initialize the loss; its scalars are arrays, so that sweeping them compiles once.

        Args:
            l2: $\lambda$, for the sum of squares over trainable parameters.
            label_smoothing: total probability $\epsilon$ that is spread over all $C$ classes, so that a wrong class has
                $\epsilon / C$.
            bootstrap: weights of the examples, `BernoulliBootstrap` for Eq. (8).
            penalty: another penalty in place of the sum of squares.
        """
        value = jnp.asarray(label_smoothing, dtype=float)
        found = "" if is_traced(value) else f"; got {float(value)}"
        message = f"`label_smoothing` must be from 0 to 1{found}."
        self.label_smoothing = require(value, ~((value >= 0) & (value <= 1)), message)
        self.penalty = choose_penalty(l2, penalty)
        self.bootstrap = bootstrap
        self.noise_key = None

    def data_loss(
        self, output: Float[Array, " classes"], y: Int[Array, ""], score: Float[Array, " classes"]
    ) -> Float[Array, ""]:
        """Return the (smoothed) log loss of the label `y`."""
        if y.ndim != 0 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype} for one.")
        # In a type that is too small for the classes they would wrap around, and several be the label.
        if output.shape[0] > jnp.iinfo(y.dtype).max:
            y = y.astype(jnp.int32)
        log_probs = jax.nn.log_softmax(output)
        classes = jnp.arange(output.shape[0], dtype=y.dtype)
        labels = (classes == y).astype(output.dtype)
        smoothed = (1 - self.label_smoothing) * labels + self.label_smoothing / output.shape[0]
        loss = -jnp.sum(smoothed * log_probs)
        # A label that is no class must not pass for a perfect prediction; NaN stops training, which names the step.
        return jnp.where((y >= 0) & (y < output.shape[0]), loss, jnp.nan)

    def check_targets(self, y: Shaped[Array, "batch ..."], num_outputs: int) -> None:
        """Raise unless `y` holds one class per example."""
        if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`y` must hold one integer label per example; got shape {y.shape} of {y.dtype}.")
        check_labels("y", y, num_outputs)
