"""Prior functions: a frozen ENN times a scale, and its sum with a trained one (Section 4.1)."""

from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from .._checks import Scalar, check_scalar, is_traced
from .._enn import AbstractENN, Indices
from .._tree import Frozen
from ._outputs import AbstractWrapper


class Prior(AbstractWrapper):
    r"""A prior function $s\,p(x, z)$, such as $\sigma^P$ of Eq. (5): a frozen ENN times a scale.

    Its weights are arrays of the model: they are saved with it, and neither a gradient nor weight decay changes them.
    Add it to an ENN by `WithPrior`, or to an epinet as one of its `priors`.
    """

    enn: Frozen[AbstractENN]
    scale: Frozen[Float[Array, ""]]
    stop_gradient: bool = eqx.field(static=True)

    def __init__(self, enn: AbstractENN, scale: Scalar = 1.0, *, stop_gradient: bool = True):
        """Initialize.

        Args:
            enn: the ENN.
            scale: its scale, which may be traced: sweeping it compiles once.
            stop_gradient: whether to stop gradients at the input too, so that a network in front of the prior is not
                trained through it. Its own weights are never trained.
        """
        if not isinstance(enn, AbstractENN):
            raise ValueError(f"`enn` must be an ENN (`as_enn` makes one of a network); got {type(enn).__name__}.")
        self.enn = Frozen(enn)
        self.scale = Frozen(check_scalar("scale", scale, minimum=0.0))
        self.stop_gradient = stop_gradient

    def embed(self, x: PyTree[Array]) -> PyTree[Array]:
        """Return the embedding of the ENN."""
        embedding = self.enn.value.embed(x)
        return jax.lax.stop_gradient(embedding) if self.stop_gradient else embedding

    def heads(self, embedding: PyTree[Array], zs: Indices) -> Float[Array, "samples classes"]:
        """Return the scaled outputs."""
        return self.scale.value * self.enn.value.heads(embedding, zs)

    def with_scale(self, scale: Scalar) -> "Prior":
        """Return the same prior with another scale."""
        return Prior(self.enn.content, scale, stop_gradient=self.stop_gradient)


class WithPriorEmbedding(NamedTuple):
    """What all indices share: the embeddings of the ENN and of its prior."""

    enn: PyTree[Array]
    prior: PyTree[Array]


class WithPrior(AbstractWrapper):
    r"""An ENN plus a prior function at the same index: $f_\theta(x, z) + s\,p(x, z)$.

    Where the data say nothing, the spread of the sum is that of the prior. The particles of "ensemble+" are
    `WithPrior(Deterministic(network), Prior(Deterministic(other), scale))`.
    """

    enn: AbstractENN
    prior: Prior

    def __init__(self, enn: AbstractENN, prior: Prior):
        """Initialize with the ENN that is trained, and a prior with an equal index and as many outputs."""
        same = eqx.tree_equal(enn.index, prior.index)
        # Under a transformation the scales of two indices cannot be compared; their kinds and sizes still are.
        if not is_traced(same) and not same:
            raise ValueError(f"`prior` must have the index of `enn`, {enn.index}; got {prior.index}.")
        self.enn = enn
        self.prior = prior

    def embed(self, x: PyTree[Array]) -> WithPriorEmbedding:
        """Return the embeddings of both."""
        return WithPriorEmbedding(self.enn.embed(x), self.prior.embed(x))

    def heads(self, embedding: WithPriorEmbedding, zs: Indices) -> Float[Array, "samples classes"]:
        """Return the sums."""
        outputs, priors = self.enn.heads(embedding.enn, zs), self.prior.heads(embedding.prior, zs)
        if priors.shape != outputs.shape:
            raise ValueError(
                f"`prior` must have as many outputs as `enn`, {outputs.shape[-1]}; got {priors.shape[-1]}."
            )
        return outputs + priors
