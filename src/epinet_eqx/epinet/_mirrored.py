"""An epinet that leaves the mean of its base alone, and whose spread has a scale of its own."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import check_scalar
from .._enn import AbstractENN
from .._tree import Frozen
from ..indices import AbstractIndex, GaussianIndex, ScaledGaussianIndex
from ._epinet import Epinet, EpinetEmbedding


class Mirrored(AbstractENN):
    r"""The odd part of an epinet around its base: $\mu(x) + \frac{c}{2} (\sigma(\tilde x, z) - \sigma(\tilde x, -z))$.

    Its mean over a symmetric index is the base's output exactly, whatever training did to the mean of the epinet: on
    features of a base that fits its training data, that is to be as sure of other data. The scale $c$ and a temperature
    then set, on held-out data, how much of the uncertainty is in the index and how much is left in each prediction.
    """

    enn: Epinet
    scale: Frozen[Float[Array, ""]]

    def __init__(self, enn: Epinet, scale: float | Float[Array, ""] = 1.0):
        """Initialize.

        Args:
            enn: the epinet, trained; its index must be symmetric about 0, for the mean to vanish.
            scale: what the odd part is multiplied by, which may be a traced array: sweeping it compiles once.
        """
        if not isinstance(enn.index, GaussianIndex | ScaledGaussianIndex):
            raise ValueError(
                f"`enn` must have an index that is symmetric about 0, a Gaussian one; got {type(enn.index).__name__}."
            )
        self.enn = enn
        self.scale = Frozen(check_scalar("scale", jnp.asarray(scale, dtype=float), minimum=0.0))

    @property
    def index(self) -> AbstractIndex:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The index of the epinet."""
        return self.enn.index

    def embed(self, x: PyTree[Array]) -> EpinetEmbedding:
        """Return the embedding of the epinet."""
        return self.enn.embed(x)

    def heads(self, embedding: EpinetEmbedding, zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices."""
        odd = (self.enn.heads(embedding, zs) - self.enn.heads(embedding, -zs)) / 2
        return embedding.base[None, :] + self.scale.value * odd
