"""Gaussian indices: standard, scaled, and with a unit entry."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_positive, check_scalar
from .._tree import Frozen
from ._abstract import AbstractIndex, unit_vector


class GaussianIndex(AbstractIndex):
    r"""$z \sim N(0, I)$, the index of the epinet (Section 4.1)."""

    index_dim: int = eqx.field(static=True)

    def __init__(self, index_dim: int):
        """Initialize with the dimension of the index."""
        check_positive("index_dim", index_dim)
        self.index_dim = index_dim

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
        return jr.normal(key, self.shape)

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return $c^\top z$ with $c$ uniform on the unit sphere."""
        return unit_vector(self.index_dim, key=key) @ z

    def support(self) -> None:
        """Return None: a Gaussian index is continuous."""
        return None


class ScaledGaussianIndex(AbstractIndex):
    r"""$z \sim N(0, s^2 I)$; $s = 1/\sqrt{D_Z}$ gives an index of expected squared length one."""

    index_dim: int = eqx.field(static=True)
    scale: Frozen[Float[Array, ""]]

    def __init__(self, index_dim: int, scale: float | Float[Array, ""] | None = None):
        """Initialize with the dimension of the index and its standard deviation."""
        check_positive("index_dim", index_dim)
        value = jnp.asarray(index_dim**-0.5 if scale is None else scale, dtype=float)
        self.index_dim = index_dim
        self.scale = Frozen(check_scalar("scale", value, minimum=0.0))

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
        return self.scale.value * jr.normal(key, self.shape)

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return $c^\top z / s$ with $c$ uniform on the unit sphere."""
        return unit_vector(self.index_dim, key=key) @ z / self.scale.value

    def support(self) -> None:
        """Return None: a Gaussian index is continuous."""
        return None


class GaussianWithUnitIndex(AbstractIndex):
    r"""$z = (1, g)$ with $g \sim N(0, I)$: a linear function of it has a mean and a random part."""

    index_dim: int = eqx.field(static=True)

    def __init__(self, index_dim: int):
        """Initialize with the dimension of the index, the unit entry included."""
        if index_dim < 2:
            raise ValueError(f"`index_dim` must be at least 2, for the unit and one Gaussian entry; got {index_dim}.")
        self.index_dim = index_dim

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one index."""
        return (self.index_dim,)

    @property
    def size(self) -> int:
        """The number of entries, the unit included."""
        return self.index_dim

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " index"]:
        """Draw one index."""
        return jnp.concatenate([jnp.ones(1), jr.normal(key, (self.index_dim - 1,))])

    def score(self, z: Float[Array, " index"], *, key: PRNGKeyArray) -> Float[Array, ""]:
        r"""Return $c^\top g$ with $c$ uniform on the unit sphere."""
        return unit_vector(self.index_dim - 1, key=key) @ z[1:]

    def support(self) -> None:
        """Return None: a Gaussian index is continuous."""
        return None
