"""Test batches whose labels are predicted jointly (Appendix F.1)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._checks import check_finite, check_labels


class JointBatches(eqx.Module):
    r"""Batches of $\tau$ inputs, their labels, and the log-likelihood of the labels under the true model.

    Attributes:
        x: the inputs.
        y: the labels.
        log_likelihoods: $\ln P(y_{1:\tau} \mid x_{1:\tau})$ of each batch, in nats.
    """

    x: Float[Array, "batches tau features"]
    y: Int[Array, "batches tau"]
    log_likelihoods: Float[Array, " batches"]

    def __init__(self, x: Any, y: Any, log_likelihoods: Any, *, input_dim: int, num_classes: int):
        """Initialize from arrays, of NumPy or JAX.

        Args:
            x: the inputs, of shape (batches, tau, input_dim).
            y: the labels, of shape (batches, tau).
            log_likelihoods: those of the true model, of shape (batches,).
            input_dim: the input dimension that `x` must have.
            num_classes: the number of classes.
        """
        x, y, log_likelihoods = jnp.asarray(x, dtype=float), jnp.asarray(y), jnp.asarray(log_likelihoods, dtype=float)
        if x.ndim != 3 or x.shape[2] != input_dim or 0 in x.shape:
            raise ValueError(f"`test_x` must have shape (batches, tau, {input_dim}); got {x.shape}.")
        if y.shape != x.shape[:2] or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"`test_y` must hold integers of shape {x.shape[:2]}; got shape {y.shape} of {y.dtype}.")
        if log_likelihoods.shape != x.shape[:1]:
            found = log_likelihoods.shape
            raise ValueError(f"`test_log_likelihoods` must have one entry per batch, {x.shape[0]}; got shape {found}.")
        self.x = check_finite("test_x", x)
        self.y = check_labels("test_y", y.astype(jnp.int32), num_classes)
        self.log_likelihoods = check_finite("test_log_likelihoods", log_likelihoods)

    @property
    def tau(self) -> int:
        """The number of labels of a batch."""
        return self.y.shape[-1]
