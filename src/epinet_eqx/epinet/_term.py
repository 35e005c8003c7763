"""One summand of an epinet."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PyTree


class AbstractTerm(eqx.Module):
    r"""A summand $\sigma(\tilde x, z)$ of Eq. (5), in the two stages of an ENN."""

    @abc.abstractmethod
    def embed(self, x: PyTree[Array], features: Float[Array, " features"]) -> PyTree[Array]:
        """Return what all indices share, from one input and the features of the base network there."""

    @abc.abstractmethod
    def heads(self, embedding: PyTree[Array], zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the contributions to the output at many indices, in the cheapest exact way."""

    def head(self, embedding: PyTree[Array], z: Float[Array, " index"]) -> Float[Array, " classes"]:
        """Return the contribution at one index."""
        return self.heads(embedding, z[None])[0]
