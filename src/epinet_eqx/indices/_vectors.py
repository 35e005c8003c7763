"""Indices that are vectors: Gaussian, with a unit entry, and on the simplex."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Scalar, check_positive, check_scalar
from .._tree import Frozen
from ._abstract import AbstractIndex


def unit_vector(dim: int, *, key: PRNGKeyArray) -> Float[Array, " index"]:
    """Draw a vector uniformly from the unit sphere."""
    direction = jr.normal(key, (dim,))
    return direction / jnp.linalg.norm(direction)


class AbstractVectorIndex(AbstractIndex):
    """An index whose values are vectors, with a continuous distribution."""

    index_dim: eqx.AbstractVar[int]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one index."""
        return (self.index_dim,)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.index_dim

    def support(self) -> None:
        """Return None: the distribution is continuous."""
        return None


class GaussianIndex(AbstractVectorIndex):
    r"""$z \sim N(0, I)$, the index of the epinet (Section 4.1)."""

    index_dim: int = eqx.field(static=True)

    def __init__(self, index_dim: int):
        """Initialize with the dimension of the index."""
        check_positive("index_dim", index_dim)
        self.index_dim = index_dim

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one index."""
        return jr.normal(key, self.shape)

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return $c^\top z$ with $c$ uniform on the unit sphere."""
        return unit_vector(self.index_dim, key=key) @ z


class ScaledGaussianIndex(AbstractVectorIndex):
    r"""$z \sim N(0, s^2 I)$; $s = 1/\sqrt{D_Z}$ gives an index of expected squared length one."""

    index_dim: int = eqx.field(static=True)
    scale: Frozen[Float[Array, ""]]

    def __init__(self, index_dim: int, scale: Scalar | None = None):
        r"""Initialize with the dimension of the index and its standard deviation, by default $1/\sqrt{D_Z}$."""
        check_positive("index_dim", index_dim)
        value = jnp.asarray(index_dim**-0.5 if scale is None else scale, dtype=float)
        self.index_dim = index_dim
        self.scale = Frozen(check_scalar("scale", value, minimum=0.0))

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one index."""
        return self.scale.value * jr.normal(key, self.shape)

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return $c^\top z / s$ with $c$ uniform on the unit sphere."""
        return unit_vector(self.index_dim, key=key) @ z / self.scale.value


class GaussianWithUnitIndex(AbstractVectorIndex):
    r"""$z = (1, g)$ with $g \sim N(0, I)$: a linear function of it has a mean and a random part."""

    index_dim: int = eqx.field(static=True)

    def __init__(self, index_dim: int):
        """Initialize with the dimension of the index, the unit entry included."""
        if index_dim < 2:
            raise ValueError(f"`index_dim` must be at least 2, for the unit and one Gaussian entry; got {index_dim}.")
        self.index_dim = index_dim

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one index."""
        return jnp.concatenate([jnp.ones(1), jr.normal(key, (self.index_dim - 1,))])

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return $c^\top g$ with $c$ uniform on the unit sphere."""
        return unit_vector(self.index_dim - 1, key=key) @ z[1:]


class DirichletIndex(AbstractVectorIndex):
    r"""$z \sim \mathrm{Dirichlet}(\alpha, \ldots, \alpha)$: convex combinations, for instance of ensemble members."""

    index_dim: int = eqx.field(static=True)
    concentration: Frozen[Float[Array, ""]]

    def __init__(self, index_dim: int, concentration: Scalar = 1.0):
        r"""Initialize with the dimension of the index and the concentration $\alpha$."""
        check_positive("index_dim", index_dim)
        value = check_scalar("concentration", concentration, minimum=1e-6)
        self.index_dim = index_dim
        self.concentration = Frozen(value)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one index."""
        return jr.dirichlet(key, jnp.broadcast_to(self.concentration.value, self.shape))

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        """Raise: there is no standard normal function of a Dirichlet index that differs by example."""
        raise TypeError(
            "A Dirichlet index has no standard normal score: the bootstraps need a Gaussian or particle index."
        )
