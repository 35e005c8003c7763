"""An ENN with an additive prior function (Section 4.1)."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from .._checks import check_scalar, check_shape, is_traced
from .._enn import AbstractENN
from .._tree import Frozen
from ..indices import AbstractIndex


class PriorEmbedding(NamedTuple):
    """What all indices share: the embeddings of the ENN and of its prior."""

    enn: PyTree[Array]
    prior: PyTree[Array]


class AdditivePrior(AbstractENN):
    r"""Any ENN plus a frozen one of the same index times a scale: $f_\theta(x, z) + s\,p(x, z)$.

    Both see the same `z`, so where the data say nothing the spread of the sum is that of the prior. The prior's weights
    are arrays of the model: they are saved with it, and no step and no weight decay moves them.
    """

    enn: AbstractENN
    prior: Frozen[AbstractENN]
    scale: Frozen[Float[Array, ""]]

    def __init__(self, enn: AbstractENN, prior: AbstractENN, scale: float | Float[Array, ""] = 1.0):
        """Initialize from parts.

        Args:
            enn: the ENN that is trained.
            prior: the fixed ENN, with an equal index and as many outputs.
            scale: the scale of the prior, an array so that sweeping it compiles once.
        """
        same = eqx.tree_equal(enn.index, prior.index)
        # Inside a transformation the scales of two indices cannot be compared; their kinds and sizes still are.
        if not is_traced(same) and not same:
            raise ValueError(f"`prior` must have the index of `enn`, {enn.index}; got {prior.index}.")
        self.enn = enn
        self.prior = Frozen(prior)
        self.scale = Frozen(check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=0.0))

    @property
    def index(self) -> AbstractIndex:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The index of the ENN."""
        return self.enn.index

    def embed(self, x: PyTree[Array]) -> PriorEmbedding:
        """Return the embeddings of both."""
        return PriorEmbedding(self.enn.embed(x), self.prior.value.embed(x))

    def heads(self, embedding: PriorEmbedding, zs: Shaped[Array, "samples ..."]) -> Float[Array, "samples classes"]:
        """Return the sums at many indices."""
        outputs = self.enn.heads(embedding.enn, zs)
        priors = self.prior.value.heads(embedding.prior, zs)
        check_shape("prior", priors, outputs.shape)
        return outputs + self.scale.value * priors
