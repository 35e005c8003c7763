"""A base network with an epinet (Section 4)."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from .._checks import check_shape
from .._enn import AbstractENN
from .._tree import Frozen, unwrap
from ..indices import AbstractIndex
from ..networks import AbstractNetwork
from ._prior import PriorNetwork
from ._term import AbstractTerm


class EpinetEmbedding(NamedTuple):
    """What all indices share: the base output, and the embedding of each term."""

    base: Float[Array, " classes"]
    learnable: PyTree[Array]
    priors: tuple[PyTree[Array], ...]


class Epinet(AbstractENN):
    r"""The ENN of Eq. (4) and (5): $\mu_\zeta(x) + \sigma^L_\eta(\tilde x, z) + \sigma^P(\tilde x, z)$.

    The features $\tilde x = \mathrm{sg}[\phi_\zeta(x)]$ are stopped: the epinet's loss reaches the base network through
    its output only, and not at all where the base is `Frozen`.
    """

    base: AbstractNetwork | Frozen[AbstractNetwork]
    learnable: AbstractTerm
    priors: tuple[PriorNetwork, ...]
    index: AbstractIndex
    stop_gradient: bool = eqx.field(static=True)

    def __init__(
        self,
        base: AbstractNetwork | Frozen[AbstractNetwork],
        learnable: AbstractTerm,
        priors: tuple[PriorNetwork, ...],
        index: AbstractIndex,
        *,
        stop_gradient: bool = True,
    ):
        """Initialize from parts.

        Args:
            base: the base network; wrap it in `Frozen` to keep pretrained weights as they are.
            learnable: the learnable epinet.
            priors: prior networks, whose outputs are added; may be empty.
            index: the reference distribution, a vector index.
            stop_gradient: whether features are stopped, as in Eq. (4). Without, the learnable epinet trains them, too.
        """
        if len(index.shape) != 1:
            raise ValueError(f"`index` must be an index with vector values; got shape {index.shape}.")
        for name, part in (
            ("learnable", learnable),
            *((f"priors[{i}]", p.network.content) for i, p in enumerate(priors)),
        ):
            index_dim = getattr(part, "index_dim", index.size)
            if index_dim != index.size:
                raise ValueError(f"`{name}` must have the dimension of `index`, {index.size}; got {index_dim}.")
        self.base = base
        self.learnable = learnable
        self.priors = priors
        self.index = index
        self.stop_gradient = stop_gradient

    def embed(self, x: PyTree[Array]) -> EpinetEmbedding:
        """Run the base network and the index-free part of each term, once."""
        output, features = unwrap(self.base).with_features(x)
        features = jax.lax.stop_gradient(features) if self.stop_gradient else features
        learnable = self.learnable.embed(x, features)
        return EpinetEmbedding(output, learnable, tuple(prior.embed(x, features) for prior in self.priors))

    def heads(self, embedding: EpinetEmbedding, zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices, each term by its exact contraction."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        priors = zip(self.priors, embedding.priors, strict=True)
        contributions = [self.learnable.heads(embedding.learnable, zs), *(prior.heads(e, zs) for prior, e in priors)]
        return _add(embedding.base[None, :], contributions)

    def with_prior_scales(self, *scales: float | Float[Array, ""]) -> "Epinet":
        """Return a copy with these prior scales, one per prior network."""
        if len(scales) != len(self.priors):
            raise ValueError(f"`scales` must have one entry per prior network, {len(self.priors)}; got {len(scales)}.")
        priors = tuple(PriorNetwork(p.network.content, s) for p, s in zip(self.priors, scales, strict=True))
        return eqx.tree_at(lambda enn: enn.priors, self, priors)


def _add(base: Float[Array, "... classes"], contributions: list[Float[Array, "... classes"]]) -> Array:
    """Return the base output plus the contributions, which must have as many outputs."""
    names = ("learnable", *(f"priors[{number}]" for number in range(len(contributions) - 1)))
    for name, contribution in zip(names, contributions, strict=True):
        if contribution.shape[-1] != base.shape[-1]:
            raise ValueError(
                f"`{name}` must have as many outputs as `base`, {base.shape[-1]}; got {contribution.shape[-1]}."
            )
    return base + sum(contributions[1:], start=contributions[0])
