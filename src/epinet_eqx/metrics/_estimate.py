"""A number with its standard error and what it was computed from."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import is_traced


class Estimate(eqx.Module):
    """A mean over examples (or pairs of them), which remembers M and tau: only like is compared with like.

    Joint log-losses fall as the number of indices M grows, for every method, and grow with the number of labels tau.
    `a - b` is the difference on the same data, with the standard error of a paired comparison; it is an error for
    different tau, or different M unless an average over the index is exact. M is infinite for a closed form.
    """

    values: Float[Array, "... groups"]
    num_samples: int | float = eqx.field(static=True)
    tau: int = eqx.field(static=True, default=1)
    exact: bool = eqx.field(static=True, default=False)

    @property
    def mean(self) -> Float[Array, "..."]:
        """The mean; for a loss in total nats over the tau labels."""
        return jnp.mean(self.values, axis=-1)

    @property
    def standard_error(self) -> Float[Array, "..."]:
        """The standard error of the mean; infinite where it is not known, as for a single value."""
        count = self.values.shape[-1]
        mean = self.mean
        if count == 1:
            return jnp.full_like(mean, jnp.inf)
        error = jnp.std(self.values, axis=-1, ddof=1) / jnp.sqrt(jnp.asarray(count, self.values.dtype))
        return jnp.where(jnp.isfinite(mean), error, jnp.inf)

    @property
    def per_label(self) -> Float[Array, "..."]:
        """The mean divided by tau."""
        return self.mean / self.tau

    def __sub__(self, other: "Estimate") -> "Estimate":
        """Return the paired difference."""
        if self.tau != other.tau:
            raise ValueError(f"`tau` must be the same for estimates that are compared; got {self.tau} and {other.tau}.")
        if self.num_samples != other.num_samples and not (self.exact or other.exact):
            raise ValueError(
                "`num_samples` must be the same for estimates that are compared, since losses fall with it; "
                f"got {self.num_samples} and {other.num_samples}."
            )
        if self.values.shape[-1] != other.values.shape[-1]:
            raise ValueError(
                "`values` must be of the same data for estimates that are compared; "
                f"got {self.values.shape[-1]} and {other.values.shape[-1]} of them."
            )
        num_samples = min(self.num_samples, other.num_samples)
        return Estimate(self.values - other.values, num_samples, self.tau, self.exact and other.exact)

    def __str__(self) -> str:
        if is_traced(self.values):
            return repr(self)
        means, errors = self.mean.reshape(-1).tolist(), self.standard_error.reshape(-1).tolist()
        numbers = ", ".join(f"{mean:.4g} ± {error:.2g}" for mean, error in zip(means, errors, strict=True))
        labels = f"tau = {self.tau}, " if self.tau > 1 else ""
        exact = ", exact" if self.exact else ""
        return f"{numbers} ({labels}M = {self.num_samples}{exact})"
