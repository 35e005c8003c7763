"""A base network with an epinet (Section 4)."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from .._checks import Scalar, check_shape
from .._enn import AbstractENN
from .._tree import Frozen, unwrap
from ..combinators import Prior
from ..indices import AbstractIndex
from ..networks import AbstractNetwork
from ._terms import TermInput


class EpinetEmbedding(NamedTuple):
    """What all indices share: the base output, and the embedding of each term."""

    base: Float[Array, " classes"]
    learnable: PyTree[Array]
    priors: tuple[PyTree[Array], ...]


class Epinet(AbstractENN):
    r"""The ENN of Eq. (4) and (5): $\mu_\zeta(x) + \sigma^L_\eta(\tilde x, z) + \sigma^P(\tilde x, z)$.

    The features $\tilde x = \mathrm{sg}[\phi_\zeta(x)]$ are stopped: the loss reaches the base network only through its
    own output, and not at all if the base is `Frozen`.
    """

    base: AbstractNetwork | Frozen[AbstractNetwork]
    learnable: AbstractENN
    priors: tuple[Prior, ...]
    index: AbstractIndex
    stop_gradient: bool = eqx.field(static=True)

    def __init__(
        self,
        base: AbstractNetwork | Frozen[AbstractNetwork],
        learnable: AbstractENN,
        priors: tuple[Prior, ...],
        index: AbstractIndex,
        *,
        stop_gradient: bool = True,
    ):
        """Initialize from parts.

        Args:
            base: the base network; wrap it in `Frozen` to keep pretrained weights unchanged.
            learnable: the learnable epinet. Like the priors it is an ENN whose input is a `TermInput`; `Reads` makes
                one of any ENN.
            priors: priors whose outputs are added; may be empty.
            index: the reference distribution; its values are the indices of all terms.
            stop_gradient: whether to stop the features, as in Eq. (4). If not, the learnable epinet trains them too.
        """
        for name, term in (("learnable", learnable), *((f"priors[{i}]", prior) for i, prior in enumerate(priors))):
            if term.index.shape != index.shape:
                raise ValueError(f"`{name}` must have the shape of `index`, {index.shape}; got {term.index.shape}.")
        self.base = base
        self.learnable = learnable
        self.priors = priors
        self.index = index
        self.stop_gradient = stop_gradient

    def embed(self, x: PyTree[Array]) -> EpinetEmbedding:
        """Run the base network and the index-free part of each term, once."""
        output, features = unwrap(self.base).with_features(x)
        pair = TermInput(x, jax.lax.stop_gradient(features) if self.stop_gradient else features)
        return EpinetEmbedding(output, self.learnable.embed(pair), tuple(prior.embed(pair) for prior in self.priors))

    def heads(self, embedding: EpinetEmbedding, zs: Float[Array, "samples index"]) -> Float[Array, "samples classes"]:
        """Return the outputs at many indices, each term by its exact contraction."""
        check_shape("zs", zs, (zs.shape[0], *self.index.shape))
        priors = zip(self.priors, embedding.priors, strict=True)
        contributions = [self.learnable.heads(embedding.learnable, zs), *(prior.heads(e, zs) for prior, e in priors)]
        return _add(embedding.base[None, :], contributions)

    def with_prior_scales(self, *scales: Scalar) -> "Epinet":
        """Return a copy with these prior scales, one per prior."""
        if len(scales) != len(self.priors):
            raise ValueError(f"`scales` must have one entry per prior, {len(self.priors)}; got {len(scales)}.")
        priors = tuple(prior.with_scale(scale) for prior, scale in zip(self.priors, scales, strict=True))
        return eqx.tree_at(lambda enn: enn.priors, self, priors)


def _term_name(number: int) -> str:
    """Return the name of a term, and what `attach` calls it: its own prior comes before those that it is given."""
    if number == 0:
        return "`learnable`"
    given = f" (`priors[{number - 2}]` of `attach`, whose own prior is the first)" if number > 1 else ""
    return f"`priors[{number - 1}]`{given}"


def _add(base: Float[Array, "... classes"], contributions: list[Float[Array, "... classes"]]) -> Array:
    """Return the base output plus the contributions, which must have as many outputs."""
    for number, contribution in enumerate(contributions):
        if contribution.shape[-1] != base.shape[-1]:
            raise ValueError(
                f"{_term_name(number)} must have as many outputs as `base`, {base.shape[-1]}; "
                f"got {contribution.shape[-1]}."
            )
    return base + sum(contributions[1:], start=contributions[0])
