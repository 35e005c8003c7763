"""An index on the probability simplex."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_positive, check_scalar
from .._tree import Frozen
from ._abstract import AbstractIndex


class DirichletIndex(AbstractIndex):
    r"""$z \sim \mathrm{Dirichlet}(\alpha, \ldots, \alpha)$: convex combinations, for instance of ensemble members."""

    index_dim: int = eqx.field(static=True)
    concentration: Frozen[Float[Array, ""]]

    def __init__(self, index_dim: int, concentration: float | Float[Array, ""] = 1.0):
        r"""Initialize with the dimension of the index and the concentration $\alpha$."""
        check_positive("index_dim", index_dim)
        value = check_scalar("concentration", jnp.asarray(concentration, dtype=float), minimum=1e-6)
        self.index_dim = index_dim
        self.concentration = Frozen(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one index."""
        return (self.index_dim,)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.index_dim

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one index."""
        return jr.dirichlet(key, jnp.broadcast_to(self.concentration.value, self.shape))

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Raise: no function of a Dirichlet index that differs by example is standard normal."""
        raise TypeError(
            "A Dirichlet index has no standard normal score: the bootstraps need a Gaussian or particle index."
        )

    def support(self) -> None:
        """Return None: a Dirichlet index is continuous."""
        return None
